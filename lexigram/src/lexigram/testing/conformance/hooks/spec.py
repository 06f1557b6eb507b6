"""What the specs of the hook registry contract share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.testing.conformance.suite import ConformanceSuite


class HookCapability(StrEnum):
    """What a hook registry can do; all of it is the core."""

    ACTIONS = "actions"
    FILTERS = "filters"
    ORDER = "order"
    ONCE = "once"
    REMOVAL = "removal"


class HookSpec(ConformanceSuite):
    """The contract and its core."""

    contract = HookRegistryProtocol
    core = frozenset(HookCapability)


class Calls(list[Any]):
    """Keeps what handlers were called with."""

    def noting(self, mark: Any) -> Callable[..., None]:
        """A plain handler that appends its mark."""
        return lambda *_, **__: self.append(mark)

    async def keep(self, **kwargs: Any) -> None:
        """An async action that appends its arguments."""
        self.append(kwargs)

    def keep_plainly(self, **kwargs: Any) -> None:
        """A plain action that appends its arguments."""
        self.append(kwargs)
