"""The bus on Kafka."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.kafka.driver import CAPABILITIES, KafkaDriver, KafkaQueue, build
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.kafka.driver": [
                "CAPABILITIES",
                "KafkaDriver",
                "KafkaQueue",
                "build",
            ]
        },
    )

__all__ = ["CAPABILITIES", "KafkaDriver", "KafkaQueue", "build"]
