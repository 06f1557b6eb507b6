"""The admin console of the bus."""

from lexigram.queue.admin.contributor import QueueAdminContributor

__all__ = ["QueueAdminContributor"]
