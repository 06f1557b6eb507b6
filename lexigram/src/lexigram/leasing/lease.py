"""A lease: the token of its holder, and its renewal while the work under it goes on."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Awaitable, Callable

import anyio

from lexigram import clock

RENEWALS_PER_LEASE = 5  # some may fail before the lease is over


def lease_token() -> str:
    """``host:pid:random``: never the same twice, and readable for people."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"


async def renew_until_lost(
    renew: Callable[[], Awaitable[bool]], lease: float, on_error: Callable[[Exception], None]
) -> None:
    """Renew a lease of ``lease`` seconds until it is lost, then return.

    It is lost when ``renew`` returns False, or when it only raised for the length of the lease:
    the lender may be back before that. Each error is passed to ``on_error``, which may raise
    it. Validity is counted from the call of ``renew``, never from its answer.
    """
    valid_until = clock.monotonic() + lease
    while True:
        await anyio.sleep(lease / RENEWALS_PER_LEASE)
        asked = clock.monotonic()
        try:
            if not await renew():
                return
            valid_until = asked + lease
        except Exception as error:  # noqa: BLE001 - ``on_error`` decides
            on_error(error)
            if clock.monotonic() >= valid_until:
                return
