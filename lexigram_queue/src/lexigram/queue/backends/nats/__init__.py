"""The bus on NATS JetStream."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.nats.driver import CAPABILITIES, NATSDriver, NATSQueue, build
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.nats.driver": [
                "CAPABILITIES",
                "NATSDriver",
                "NATSQueue",
                "build",
            ]
        },
    )

__all__ = ["CAPABILITIES", "NATSDriver", "NATSQueue", "build"]
