"""Parts of everything that works off leased items: no database and no broker is needed for them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.leasing.backoff import Backoff
    from lexigram.leasing.coalescer import Coalescer
    from lexigram.leasing.lease import RENEWALS_PER_LEASE, lease_token, renew_until_lost
    from lexigram.leasing.pool import LeasedRun, LeasePool, StopReason
    from lexigram.leasing.subscriptions import Subscription, Subscriptions, Waiter
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.leasing.backoff": ["Backoff"],
            "lexigram.leasing.coalescer": ["Coalescer"],
            "lexigram.leasing.lease": ["RENEWALS_PER_LEASE", "lease_token", "renew_until_lost"],
            "lexigram.leasing.pool": ["LeasePool", "LeasedRun", "StopReason"],
            "lexigram.leasing.subscriptions": ["Subscription", "Subscriptions", "Waiter"],
        },
    )

__all__ = [
    "RENEWALS_PER_LEASE",
    "Backoff",
    "Coalescer",
    "LeasePool",
    "LeasedRun",
    "StopReason",
    "Subscription",
    "Subscriptions",
    "Waiter",
    "lease_token",
    "renew_until_lost",
]
