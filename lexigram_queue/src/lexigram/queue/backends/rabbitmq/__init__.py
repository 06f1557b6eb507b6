"""The bus on RabbitMQ."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.rabbitmq.driver import (
        CAPABILITIES,
        QUORUM_CAPABILITIES,
        RabbitMQDriver,
        RabbitMQQueue,
        build,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.rabbitmq.driver": [
                "CAPABILITIES",
                "QUORUM_CAPABILITIES",
                "RabbitMQDriver",
                "RabbitMQQueue",
                "build",
            ]
        },
    )

__all__ = ["CAPABILITIES", "QUORUM_CAPABILITIES", "RabbitMQDriver", "RabbitMQQueue", "build"]
