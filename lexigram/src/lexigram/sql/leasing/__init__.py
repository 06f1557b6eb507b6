"""Parts that every leasing store shares; each store keeps its own statements."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.sql.leasing.backoff import Backoff
    from lexigram.sql.leasing.clock import lease_now
    from lexigram.sql.leasing.coalescer import Coalescer
    from lexigram.sql.leasing.token import lease_token
    from lexigram.sql.leasing.wakeup import WakeUp
else:
    from lexigram.contracts._lazy import lazy_exports

    # A token or a backoff is wanted also where no database is.
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.sql.leasing.backoff": ["Backoff"],
            "lexigram.sql.leasing.clock": ["lease_now"],
            "lexigram.sql.leasing.coalescer": ["Coalescer"],
            "lexigram.sql.leasing.token": ["lease_token"],
            "lexigram.sql.leasing.wakeup": ["WakeUp"],
        },
    )

__all__ = ["Backoff", "Coalescer", "WakeUp", "lease_now", "lease_token"]
