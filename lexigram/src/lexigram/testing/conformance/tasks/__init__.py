"""The conformance suites of background jobs: queue, dead letters, progress, idempotency."""

from lexigram.testing.conformance.tasks.dead_letters import DLQConformance
from lexigram.testing.conformance.tasks.idempotency import IdempotencyConformance
from lexigram.testing.conformance.tasks.progress import ProgressConformance
from lexigram.testing.conformance.tasks.spec import TaskQueueCapability
from lexigram.testing.conformance.tasks.suite import TaskQueueConformance

__all__ = [
    "DLQConformance",
    "IdempotencyConformance",
    "ProgressConformance",
    "TaskQueueCapability",
    "TaskQueueConformance",
]
