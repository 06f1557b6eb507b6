"""The bus on Amazon SQS."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.sqs.driver import CAPABILITIES, OF_FIFO, SQSDriver, SQSQueue, build
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.sqs.driver": [
                "CAPABILITIES",
                "OF_FIFO",
                "SQSDriver",
                "SQSQueue",
                "build",
            ]
        },
    )

__all__ = ["CAPABILITIES", "OF_FIFO", "SQSDriver", "SQSQueue", "build"]
