"""What leases need of a database: its clock and its notifications; the rest: `lexigram.leasing`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.sql.database import lease_now
    from lexigram.sql.leasing.wakeup import WakeUp
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.sql.database": ["lease_now"],
            "lexigram.sql.leasing.wakeup": ["WakeUp"],
        },
    )

__all__ = ["WakeUp", "lease_now"]
