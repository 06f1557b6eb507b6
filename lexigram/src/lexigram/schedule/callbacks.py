"""Run in-process callbacks: claim a record, call, settle it. At least once.

A record is leased while its callback runs; when the process dies the lease runs out and another
process that has the callback takes it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup

from lexigram import clock
from lexigram.concurrency import call
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.contracts.infra.schedule.types import Firing, FiringState
from lexigram.leasing import RENEWALS_PER_LEASE, lease_token
from lexigram.observability import get_logger
from lexigram.schedule import store
from lexigram.schedule.config import ScheduleConfig
from lexigram.schedule.report import Reporter
from lexigram.schedule.scheduler import CHANNEL
from lexigram.schedule.store import Row
from lexigram.schedule.ticks import moment
from lexigram.sql import Database
from lexigram.sql.leasing import lease_now
from lexigram.sql.steps import Steps

Host: TypeAlias = asyncio.Task[Any] | None
Callback: TypeAlias = Callable[[Firing], Awaitable[object]]

logger = get_logger(__name__)


class Callbacks:
    """The callbacks of this process, by name, and those that run now."""

    def __init__(self, database: Database, config: ScheduleConfig, reporter: Reporter) -> None:
        self.known: dict[str, Callback] = {}
        self.running = 0
        self._db = database
        self._sql = store.STATEMENTS[database.dialect]
        self._config = config
        self._reporter = reporter
        self._holder = lease_token()

    async def start_pending(self, tasks: TaskGroup, host: Host) -> int:
        """Claim what is pending, as much as there is room for, and run it in the group of ``host``."""
        room = self._config.callback_limit - self.running
        if room <= 0 or not self.known:
            return 0
        # A look costs no write while nothing is unfinished: on SQLite there is one writer.
        if (await self._db.execute_query(store.UNFINISHED)).rows[0]["lease"] is None:
            return 0
        rows = await self._db.run_steps(lambda: self._claim(room))
        for row in rows:
            self.running += 1
            tasks.start_soon(self._run, row, host, name=f"schedule {row['schedule']}")
        return len(rows)

    async def run_pending(self) -> int:
        """Run what is pending to its end, up to ``callback_limit`` of them; how many."""
        count = 0
        async with anyio.create_task_group() as tasks:
            count = await self.start_pending(tasks, asyncio.current_task())
        return count  # noqa: RET504 - inside the block, a group could swallow it

    async def renew(self) -> None:
        """Keep the leases of what runs here, until cancelled."""
        while True:
            await anyio.sleep(self._config.callback_lease / RENEWALS_PER_LEASE)
            if not self.running:
                continue
            try:
                await self._db.run_steps(self._renew)
            except DatabaseError as error:  # the next renewal may work; else others take over
                logger.warning("leases of callbacks not renewed", error=str(error))

    async def _run(self, row: Row, host: Host) -> None:
        firing = Firing(
            schedule=row["schedule"],
            tick=moment(row["tick"]),
            fired_at=moment(row["fired"]),
            manual=bool(row["manual"]),
            state=FiringState.PENDING,
        )
        began = clock.monotonic()
        failure: Exception | None = None
        try:
            name, limit = row["callback"], self._config.callback_timeout
            try:
                await call(self.known[name], firing, timeout=limit, name=name, host=host)
            except Exception as error:  # noqa: BLE001 - the boundary to the user's function
                failure = error
            self._reporter.called(row["schedule"], clock.monotonic() - began, failure)
            await self._settle(row, failure)
        finally:
            self.running -= 1
        if self.running == self._config.callback_limit - 1:
            await self._tell_of_room()

    async def _settle(self, row: Row, failure: Exception | None) -> None:
        state = FiringState.DONE if failure is None else FiringState.FAILED
        error = None if failure is None else f"{type(failure).__name__}: {failure}"
        key = row["schedule"], row["tick"], row["manual"], self._holder
        try:
            await self._db.execute(store.FINISH, (state.value, error, *key))
        except DatabaseError as problem:  # its lease runs out, and it runs again
            logger.warning(
                "end of a callback not recorded",
                schedule=row["schedule"],
                tick=moment(row["tick"]),
                error=str(problem),
            )

    async def _tell_of_room(self) -> None:
        """Wake the loop: more may be pending than there was room for."""
        try:
            await self._db.notify(CHANNEL)
        except DatabaseError as problem:  # it looks again by itself
            logger.debug("loop not woken", error=str(problem))

    def _claim(self, room: int) -> Steps[list[Row]]:
        now = yield from self._now()
        lease = now + self._lease()
        params = (now, json.dumps(sorted(self.known)), room, lease, self._holder)
        return (yield self._sql.claim, params).rows

    def _renew(self) -> Steps[None]:
        now = yield from self._now()
        yield store.RENEW, (now + self._lease(), self._holder)

    def _now(self) -> Steps[int]:
        return int((yield from lease_now(self._db.dialect)) * 1000)

    def _lease(self) -> int:
        return round(self._config.callback_lease * 1000)
