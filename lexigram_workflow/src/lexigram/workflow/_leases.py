"""Keep a lease while work goes on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from lexigram.leasing import renew_until_lost

# Long enough for a pause of the process, short enough to wait for after a crash.
LEASE_SECONDS = 30.0

_log = logging.getLogger(__name__)


async def until_lost(what: str, renew: Callable[[], Awaitable[bool]], lease: float) -> None:
    """Renew again and again; return once the lease cannot be ours any more."""

    def warn(error: Exception) -> None:
        _log.warning("%s: the lease was not renewed: %s", what, error)

    await renew_until_lost(renew, lease, warn)


async def give_back(what: str, release: Callable[[], Awaitable[None]]) -> None:
    """Release, if the store answers: a lease ends by itself, and what the work raised must be
    seen and not this.
    """
    try:
        await release()
    except Exception as error:  # noqa: BLE001 - the boundary: any store, any failure
        _log.warning("%s: not given back: %s", what, error)
