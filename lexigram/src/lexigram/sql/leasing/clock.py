"""The clock leases are measured by: one for all processes that share a database."""

from __future__ import annotations

from lexigram import clock
from lexigram.sql.steps import Steps
from lexigram.sql.url import Dialect

# clock_timestamp(), not now(): a transaction may have waited for a lock since it began.
POSTGRES_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now"


def lease_now(dialect: Dialect) -> Steps[float]:
    """Seconds since 1970, asked within ``run_steps`` by ``yield from``.

    PostgreSQL: the server's clock, since its clients are on many machines. SQLite: the clock of
    this machine (``lexigram.clock``), which all users of the file share.
    """
    if dialect == "sqlite":
        return clock.timestamp()
    found = yield POSTGRES_NOW, ()
    return float(found.rows[0]["now"])
