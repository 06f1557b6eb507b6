"""Call a sync function of others so that it raises exceptions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lexigram.concurrency.errors import CallAbortedError

T = TypeVar("T")


def call_sync(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call it where no event loop runs; only KeyboardInterrupt passes as it is."""
    try:
        return function(*args, **kwargs)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise CallAbortedError(error) from error
