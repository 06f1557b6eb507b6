"""What the type checkers say about the test kit; read by them, never run."""

from typing import assert_type

from lexigram.testing import wait_until


async def is_ready() -> bool:
    return True


def find() -> str | None:
    return None


async def waiting() -> None:
    await wait_until(is_ready)
    assert_type(await wait_until(is_ready), bool)
    assert_type(await wait_until(find), str | None)
    await wait_until(lambda: is_ready())
