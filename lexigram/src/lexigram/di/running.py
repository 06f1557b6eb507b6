"""The running task, asked for by every scope that may own generators."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    current_task = asyncio.current_task
else:
    from asyncio.tasks import _current_tasks

    def current_task() -> asyncio.Task[Any] | None:
        """What ``asyncio.current_task`` returns.

        3.11 has that in Python, and asking for the running loop calls getpid: 240 ns in all.
        With one loop running in the process, the only task that runs is the one that asks.
        """
        try:
            (task,) = _current_tasks.values()
        except ValueError:
            return asyncio.current_task()
        return task
