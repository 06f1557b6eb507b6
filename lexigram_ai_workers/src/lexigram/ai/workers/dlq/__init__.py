"""Dead letters: the worker that recovers them, classifiers, sources, stores and notifiers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.ai.workers.dlq.classifier import (
        ClassifierProtocol,
        ErrorClassifier,
        RuleClassifier,
    )
    from lexigram.ai.workers.dlq.notifiers import (
        FunctionNotifier,
        LogNotifier,
        NotifierProtocol,
        WebhookNotifier,
    )
    from lexigram.ai.workers.dlq.sources import (
        BusDeadLetterSource,
        DeadLetterSource,
        JobDeadLetterSource,
    )
    from lexigram.ai.workers.dlq.store import DeadLetterStore, MemoryDeadLetterStore
    from lexigram.ai.workers.dlq.store_sql import SqlDeadLetterStore
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
            "lexigram.ai.workers.dlq.notifiers": [
                "FunctionNotifier",
                "LogNotifier",
                "NotifierProtocol",
                "WebhookNotifier",
            ],
            "lexigram.ai.workers.dlq.sources": [
                "BusDeadLetterSource",
                "JobDeadLetterSource",
                "DeadLetterSource",
            ],
            "lexigram.ai.workers.dlq.store": ["DeadLetterStore", "MemoryDeadLetterStore"],
            "lexigram.ai.workers.dlq.store_sql": ["SqlDeadLetterStore"],
            "lexigram.ai.workers.dlq.worker": ["DeadLetterQueueWorker"],
        },
    )

__all__ = [
    "BusDeadLetterSource",
    "ClassifierProtocol",
    "DeadLetterQueueWorker",
    "DeadLetterSource",
    "DeadLetterStore",
    "ErrorClassifier",
    "FunctionNotifier",
    "JobDeadLetterSource",
    "LogNotifier",
    "MemoryDeadLetterStore",
    "NotifierProtocol",
    "RuleClassifier",
    "SqlDeadLetterStore",
    "WebhookNotifier",
]
