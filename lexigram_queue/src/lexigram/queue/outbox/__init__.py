"""Outbox and inbox: messages that commit together with a change of the database."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.outbox.outbox import OutboxRelay, TransactionalOutbox
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__, {"lexigram.queue.outbox.outbox": ["OutboxRelay", "TransactionalOutbox"]}
    )

__all__ = ["OutboxRelay", "TransactionalOutbox"]
