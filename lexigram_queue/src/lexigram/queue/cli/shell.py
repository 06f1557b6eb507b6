"""The control of the bus at the prompt of ``lexigram shell``."""

from __future__ import annotations

from typing import Any

from lexigram.queue.operations.control import BusControl


async def control(container: Any) -> BusControl:
    """The control of the application's bus; of no backend where it has no bus."""
    return await container.resolve_optional(BusControl) or BusControl({})
