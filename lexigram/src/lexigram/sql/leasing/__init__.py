"""Parts that every leasing store shares; each store keeps its own statements."""

from lexigram.sql.leasing.backoff import Backoff
from lexigram.sql.leasing.clock import lease_now
from lexigram.sql.leasing.coalescer import Coalescer
from lexigram.sql.leasing.token import lease_token
from lexigram.sql.leasing.wakeup import WakeUp

__all__ = ["Backoff", "Coalescer", "WakeUp", "lease_now", "lease_token"]
