"""Dead letters: the worker that recovers them, and how it tells why something failed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.dlq.classifier import (
        ClassifierProtocol,
        ErrorClassifier,
        RuleClassifier,
    )
    from lexigram.ai.workers.dlq.notices import (
        FunctionNotifier,
        LogNotifier,
        NotifierProtocol,
        WebhookNotifier,
    )
    from lexigram.ai.workers.dlq.sources import BusLetters, JobLetters, LetterSource
    from lexigram.ai.workers.dlq.store import LetterStore, MemoryLetters
    from lexigram.ai.workers.dlq.store_sql import SqlLetters
    from lexigram.ai.workers.dlq.worker import DeadLetterQueueWorker
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.ai.workers.dlq.classifier": [
                "ClassifierProtocol",
                "ErrorClassifier",
                "RuleClassifier",
            ],
            "lexigram.ai.workers.dlq.notices": [
                "FunctionNotifier",
                "LogNotifier",
                "NotifierProtocol",
                "WebhookNotifier",
            ],
            "lexigram.ai.workers.dlq.sources": ["BusLetters", "JobLetters", "LetterSource"],
            "lexigram.ai.workers.dlq.store": ["LetterStore", "MemoryLetters"],
            "lexigram.ai.workers.dlq.store_sql": ["SqlLetters"],
            "lexigram.ai.workers.dlq.worker": ["DeadLetterQueueWorker"],
        },
    )

__all__ = [
    "BusLetters",
    "ClassifierProtocol",
    "DeadLetterQueueWorker",
    "ErrorClassifier",
    "FunctionNotifier",
    "JobLetters",
    "LetterSource",
    "LetterStore",
    "LogNotifier",
    "MemoryLetters",
    "NotifierProtocol",
    "RuleClassifier",
    "SqlLetters",
    "WebhookNotifier",
]
