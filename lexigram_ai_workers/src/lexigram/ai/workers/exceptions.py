"""The errors of the AI workers, under the path of the 0.1 line."""

from lexigram.ai.workers.errors import DLQError, MaintenanceError, WorkerError

__all__ = ["DLQError", "MaintenanceError", "WorkerError"]
