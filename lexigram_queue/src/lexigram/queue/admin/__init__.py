"""The bus in the operators' console."""

from lexigram.queue.admin.contributor import QueueAdminContributor

__all__ = ["QueueAdminContributor"]
