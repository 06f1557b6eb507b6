"""Keep a lease while work goes on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from lexigram import clock

# Long enough for a pause of the process, short enough to wait for after a crash.
LEASE_SECONDS = 30.0
# A renewal may be late by two of these before the lease ends.
RENEWALS_PER_LEASE = 3

_log = logging.getLogger(__name__)


async def until_lost(what: str, renew: Callable[[], Awaitable[bool]], lease: float) -> None:
    """Renew again and again; return once the lease cannot be ours any more."""
    pause = lease / RENEWALS_PER_LEASE
    renewed = clock.monotonic()
    while True:
        await anyio.sleep(pause)
        try:
            held = await renew()
        except Exception as error:  # noqa: BLE001 - the boundary: any store, any failure
            # The store may be back before the lease ends; after that it is not ours.
            _log.warning("%s: the lease was not renewed: %s", what, error)
            held = clock.monotonic() - renewed < lease
        else:
            renewed = clock.monotonic()
        if not held:
            return


async def given_back(what: str, release: Callable[[], Awaitable[None]]) -> None:
    """Release, if the store answers: a lease ends by itself, and what the work raised must be
    seen and not this.
    """
    try:
        await release()
    except Exception as error:  # noqa: BLE001 - the boundary: any store, any failure
        _log.warning("%s: not given back: %s", what, error)
