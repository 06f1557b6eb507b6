"""The bus on Azure Service Bus."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.azure_servicebus.driver import (
        CAPABILITIES,
        AzureServiceBusDriver,
        AzureServiceBusQueue,
        build,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.azure_servicebus.driver": [
                "AzureServiceBusDriver",
                "AzureServiceBusQueue",
                "CAPABILITIES",
                "build",
            ]
        },
    )

__all__ = ["CAPABILITIES", "AzureServiceBusDriver", "AzureServiceBusQueue", "build"]
