"""Group commit, backoff and tokens, without a database."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from lexigram.leasing import Backoff, Coalescer, lease_token

pytestmark = pytest.mark.anyio


async def test_a_bad_item_fails_alone_and_a_cancelled_one_is_left_out():
    written = []
    gate = anyio.Event()

    async def write(items):
        await gate.wait()
        if "bad" in items:
            raise ValueError("bad")
        written.extend(items)
        return items

    coalescer = Coalescer(write)
    first = asyncio.create_task(coalescer.add("first"))
    await anyio.sleep(0.01)
    good, bad, cancelled = (
        asyncio.create_task(coalescer.add(item)) for item in ("good", "bad", "cancelled")
    )
    await anyio.lowlevel.checkpoint()
    cancelled.cancel()
    await anyio.lowlevel.checkpoint()
    gate.set()
    assert [await first, await good] == ["first", "good"]
    with pytest.raises(ValueError, match="bad"):
        await bad
    assert written == ["first", "good"]


def test_backoff_doubles_up_to_its_cap_and_never_overflows():
    steady = Backoff(first=1, cap=5, jitter=0)
    assert [steady.delay(n) for n in (0, 1, 2, 3, 4, 10_000)] == [1, 1, 2, 4, 5, 5]
    assert all(0.5 <= Backoff(first=1, cap=1).delay(1) <= 1 for _ in range(100))


def test_lease_tokens_are_never_the_same():
    assert len({lease_token() for _ in range(100)}) == 100
