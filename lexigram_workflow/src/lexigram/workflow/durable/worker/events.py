"""Deliver stored events: to handlers that plans name, and to listeners of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup
from attrs import frozen

from lexigram import clock
from lexigram.concurrency import TaskSupervisor, is_retryable, time_limit
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.leasing import Backoff, lease_token
from lexigram.observability import get_logger
from lexigram.sql.database import Database, Transaction
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError, HandlerMissingError
from lexigram.workflow.durable.models import RunStep, WorkflowRun, group_from
from lexigram.workflow.durable.plan import (
    LifeCycleEvent,
    LifecycleHandler,
    RunPlan,
    error_text,
)
from lexigram.workflow.durable.store.base import persist
from lexigram.workflow.durable.store.records import Audience, GroupEvent, Handled
from lexigram.workflow.durable.worker._heartbeat import LeaseHeartbeat
from lexigram.workflow.durable.worker.pools import Isolation
from lexigram.workflow.durable.worker.steps import StepHandler, result_text

logger = get_logger(__name__)

Listener = Callable[[GroupEvent], Awaitable[None]]

_AT_ONCE = 4  # events of one audience that a worker delivers side by side
_HANDLER_SECONDS = 5.0  # poll interval for events of plans, in seconds; notifications come earlier
_CLEANUP_SECONDS = 5.0  # to give back what a stop cut off
_AGAIN = Backoff(first=1.0, cap=300.0)
_ELSEWHERE_SECONDS = 5.0  # for which an event is left to others, who may have its handler
_MOST_LEFT = 1000  # events left to others at a time
_DONE = (RunStatus.COMPLETED, RunStatus.FAILED)


@frozen(kw_only=True)
class RunNotice:
    """What just happened to a run or a step in this process; see ``Worker``'s ``publish``."""

    kind: LifeCycleEvent
    run_step: RunStep
    workflow_run: WorkflowRun
    # of the step or the run after it
    status: RunStatus
    message: str | None = None


# Called with what happened, and with a function that makes the notice if it is wanted.
Publish = Callable[[LifeCycleEvent, Callable[[], RunNotice]], Awaitable[None]]


class EventContext:
    """The event that is handled, for its handler: the parameter ``ctx``."""

    def __init__(
        self,
        attempt: int,
        idempotency_key: str,
        *,
        heartbeat: Callable[[], Awaitable[bool]],
        complete: Callable[[], Awaitable[bool]],
        database: Database,
    ) -> None:
        # 1 for the first
        self.attempt = attempt
        # the same whenever this handler is called for this event, also after a crash
        self.idempotency_key = idempotency_key
        self._heartbeat = heartbeat
        self._complete = complete
        self._database = database
        self._has_completed = False
        self.cancelled = False

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """What the block writes to the database of the runs happens exactly once.

        It is committed together with the note that the handler is done: after that no crash and
        no error calls the handler again for this event, before it nothing of the block remains.
        Keep it short: on SQLite no other connection can write meanwhile. Once per handler call.
        """
        self._database.refuse_inside_transaction("ctx.transaction()")
        if self._has_completed:
            raise DurableError(
                f"the handler of {self.idempotency_key} has completed in a transaction already",
                hint="write everything in one `async with ctx.transaction()` block",
            )
        async with self._database.transaction() as transaction:
            yield transaction
            # At the end, for a moment: the heartbeat would wait for a row that is locked so long.
            if not await self._complete():
                raise DurableError(
                    f"another worker has {self.idempotency_key} now; what was written is undone"
                )
            self._has_completed = True

    async def heartbeat(self) -> bool:
        """Renew the lease now; False when another worker has the event. Done by the worker too."""
        return await self._heartbeat()


class Deliveries:
    """What one worker does about events; each is leased, and kept while it is delivered.

    A handler of a plan is called until it succeeds once or has no attempt left; each has a row in
    the history. A listener is called until it succeeds or
    raises an error that is not retryable. A crash in between repeats the call that
    was under way and nothing that is written as done. No order is promised between events.
    """

    def __init__(
        self,
        engine: DurableEngine,
        worker_id: str,
        heartbeat: LeaseHeartbeat,
        handler: Callable[[str], StepHandler],
        listeners: Mapping[LifeCycleEvent, Listener],
        poll_interval: float,
        supervisor: TaskSupervisor,
        isolation: Isolation,
        listener_timeout: float | None = None,
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._heartbeat = heartbeat
        self._handler = handler
        self._listeners = listeners
        self._poll_interval = poll_interval
        self._supervisor = supervisor
        self._isolation = isolation
        self._listener_timeout = listener_timeout
        self._held: dict[tuple[int, str], anyio.CancelScope] = {}
        # by its number, until when an event is left to others
        self._left: dict[int, float] = {}
        self._news = {audience: asyncio.Event() for audience in Audience}
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_closed = False

    def start(self, tasks: TaskGroup) -> None:
        """Begin to look for events; ends with the task group."""
        self.is_closed = False
        every = {Audience.HANDLER: _HANDLER_SECONDS}
        if self._listeners:
            every[Audience.LISTENER] = self._poll_interval
        for audience, seconds in every.items():
            name = f"events for a {audience}"
            tasks.start_soon(self._supervisor.run, name, self._deliver_on, tasks, audience, seconds)

    def look(self) -> None:
        """Look for events now."""
        for news in self._news.values():
            news.set()

    def close(self) -> None:
        """Take no more; ``idle`` is set when those under way are done."""
        self.is_closed = True

    def abandon(self, events: Sequence[tuple[int, str]]) -> None:
        """Cancel the handling of events that another worker has now: its result would not count."""
        for key in events:
            if (scope := self._held.get(key)) is not None:
                scope.cancel()

    # --- taking ---------------------------------------------------------------------------------

    async def _deliver_on(self, tasks: TaskGroup, audience: Audience, every: float) -> None:
        news = self._news[audience]
        free = asyncio.Semaphore(_AT_ONCE)
        while True:
            news.clear()
            await free.acquire()
            try:
                event = None if self.is_closed else await self._take(audience)
            except DurableError as error:
                event = None
                logger.warning("cannot take events", worker=self._worker_id, error=str(error))
            if event is None:
                free.release()
                with anyio.move_on_after(every):
                    await news.wait()
                continue
            scope = self._hold(event)
            # Once: the event comes again by itself.
            name = f"event for a {audience}"
            tasks.start_soon(
                self._supervisor.run_once, name, self._deliver, event, audience, scope, free
            )

    async def _take(self, audience: Audience) -> GroupEvent | None:
        kinds = list(self._listeners) if audience is Audience.LISTENER else list(LifeCycleEvent)
        seconds = self._engine.terms.lease
        now = clock.monotonic()
        self._left = {event: until for event, until in self._left.items() if until > now}
        if len(self._left) >= _MOST_LEFT:
            return None
        taken = await self._engine.store.take_events(
            lease_token(),
            seconds=seconds,
            limit=1,
            kinds=kinds,
            audience=audience,
            worker_id=self._worker_id,
            left=list(self._left),
        )
        return taken[0] if taken else None

    def _hold(self, event: GroupEvent) -> anyio.CancelScope:
        key = (event.id, event.lease)
        scope = self._held[key] = anyio.CancelScope()
        self._heartbeat.events[key] = None
        self.idle.clear()
        return scope

    async def _deliver(
        self,
        event: GroupEvent,
        audience: Audience,
        scope: anyio.CancelScope,
        free: asyncio.Semaphore,
    ) -> None:
        retry_in: float | None = 0.0  # cut off: for others at once
        is_settled = False
        try:
            with scope:
                if audience is Audience.LISTENER:
                    retry_in = await self._call_listener(event)
                else:
                    retry_in = await self._handle(event)
            await self._settle(event, retry_in)
            is_settled = True
        finally:
            if not is_settled:
                with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                    await self._settle(event, retry_in)
            key = (event.id, event.lease)
            self._held.pop(key, None)
            self._heartbeat.events.pop(key, None)
            free.release()
            if not self._held:
                self.idle.set()
            if retry_in:
                asyncio.get_running_loop().call_later(retry_in, self.look)

    async def _settle(self, event: GroupEvent, retry_in: float | None) -> None:
        try:
            await persist(
                lambda: self._engine.store.settle_event(event, retry_in=retry_in),
                self._engine.terms.lease,
            )
        except DurableError as error:
            logger.warning("an event is not settled and comes again", error=str(error))

    # --- listeners ------------------------------------------------------------------------------

    async def _call_listener(self, event: GroupEvent) -> float | None:
        try:
            await self._isolation.enter(alone=False)
            try:
                with time_limit(self._listener_timeout, f"a listener of {event.kind}"):
                    await self._listeners[event.kind](event)
            finally:
                self._isolation.leave(alone=False)
        except BaseException as error:
            failure = await self._supervisor.failure_of(error)
            if failure is None:
                raise
            is_final = not is_retryable(failure)
            (logger.error if is_final else logger.warning)(
                "a listener failed",
                event=event.kind,
                group=event.group_id,
                is_final=is_final,
                error=error_text(failure),
                exc_info=failure,
            )
            return None if is_final else _AGAIN.delay(event.tries)
        return None

    # --- handlers of plans ----------------------------------------------------------------------

    async def _handle(self, event: GroupEvent) -> float | None:
        """All handlers of the event in their order; seconds to the next try when one needs it."""
        try:
            plan_id = await self._engine.store.plan_of_event(event)
            if plan_id is None:
                return None  # retention was here
            plan = await self._engine.plan(plan_id)
            known = {row.handler_no: row for row in await self._engine.store.list_handled(event.id)}
            waits: list[float | None] = []
            for number, handler in enumerate(plan.lifecycle.get(event.kind, ()), 1):
                if number in known and known[number].status in _DONE:
                    continue
                waits.append(
                    await self._handle_one(event, plan, number, handler, known.get(number))
                )
        except DurableError as error:
            logger.warning("cannot handle an event", event=event.kind, error=str(error))
            return _AGAIN.delay(event.tries)
        return max((wait for wait in waits if wait is not None), default=None)

    async def _handle_one(
        self,
        event: GroupEvent,
        plan: RunPlan,
        number: int,
        handler: LifecycleHandler,
        before: Handled | None,
    ) -> float | None:
        try:
            function = self._handler(handler.handler)
        except HandlerMissingError as error:
            logger.warning("left to other workers", event=event.kind, error=str(error))
            self._left[event.id] = clock.monotonic() + _ELSEWHERE_SECONDS
            self._note_handler(handler.handler, is_here=False)
            return 0.0  # for others at once
        self._note_handler(handler.handler, is_here=True)
        was_cut_off = before is not None and before.status is RunStatus.RUNNING
        lost = before.lost + 1 if before is not None and was_cut_off else 0
        attempt = (0 if before is None else before.attempts) + (0 if was_cut_off else 1)
        # As for steps: the first loss may have any cause.
        max_lost = self._engine.terms.max_lost
        alone = lost > 1 or lost == max_lost == 1
        await self._isolation.enter(alone=alone)
        try:
            if not await self._engine.store.begin_handler(
                event, number, handler.name, self._worker_id
            ):
                return None  # another worker has it
            if lost > max_lost:
                await self._end_poison(event, number, lost)
                return None
            return await self._attempt(event, plan, number, handler, function, attempt)
        finally:
            self._isolation.leave(alone=alone)

    def _note_handler(self, name: str, *, is_here: bool) -> None:
        """Check in with what is missing here as soon as that changes."""
        known = set(self._heartbeat.lacks_handlers)
        if (name in known) is is_here:
            self._heartbeat.lacks_handlers = sorted(known ^ {name})
            self._heartbeat.wake()

    async def _end_poison(self, event: GroupEvent, number: int, lost: int) -> None:
        text = f"poison: its worker ended {lost} times while the handler ran"
        facts = orjson.dumps({"error": "WorkerLost", "reason": "poison"}).decode()
        await self._end(event, number, RunStatus.FAILED, text, facts)
        logger.error("a lifecycle handler failed as poison", event=event.kind, error=text)

    async def _attempt(
        self,
        event: GroupEvent,
        plan: RunPlan,
        number: int,
        handler: LifecycleHandler,
        function: StepHandler,
        attempt: int,
    ) -> float | None:
        context = self._context(event, number, attempt)
        try:
            with time_limit(handler.timeout, f"handler {handler.name!r}"):
                meta = result_text(
                    await self._call_handler(function, event, plan, handler, context)
                )
        except BaseException as error:
            failure = await self._supervisor.failure_of(error)
            if failure is None:
                raise
            is_final = attempt >= handler.retries or not is_retryable(failure)
            status = RunStatus.FAILED if is_final else RunStatus.ERROR
            facts = orjson.dumps({"error": type(failure).__name__}).decode()
            await self._end(event, number, status, error_text(failure), facts)
            logger.warning(
                "a lifecycle handler failed",
                event=event.kind,
                handler=handler.name,
                group=event.group_id,
                attempt=attempt,
                is_final=is_final,
                error=error_text(failure),
                exc_info=failure,
            )
            return None if is_final else _AGAIN.delay(attempt)
        await self._end(event, number, RunStatus.COMPLETED, "success", meta)
        return None

    async def _end(
        self,
        event: GroupEvent,
        number: int,
        status: RunStatus,
        message: str,
        meta: str | None = None,
    ) -> None:
        """Also after an outage of the database: a handler that has done its work is not called again."""
        store = self._engine.store
        await persist(
            lambda: store.end_handler(event, number, status, message, meta),
            self._engine.terms.lease,
        )

    def _context(self, event: GroupEvent, number: int, attempt: int) -> EventContext:
        key = (event.id, event.lease)
        store = self._engine.store

        async def beat() -> bool:
            return bool(await self._engine.store.keep_events([key]))

        return EventContext(
            attempt,
            f"{event.idempotency_key}-handler-{number}",
            heartbeat=beat,
            complete=lambda: store.end_handler(event, number, RunStatus.COMPLETED, "success", None),
            database=self._engine.database,
        )

    async def _call_handler(
        self,
        function: StepHandler,
        event: GroupEvent,
        plan: RunPlan,
        handler: LifecycleHandler,
        context: EventContext,
    ) -> Any:
        store = self._engine.store
        group = await store.group(event.group_id)
        workflow_run = run_step = None
        if event.run_id is not None:
            workflow_run = await self._engine.run(event.run_id)
            steps = await self._engine.steps(event.run_id)
            run_step = next((s for s in steps if s.workflow_step_number == event.step_no), None)
        known = {
            "event": event,
            "run_group": None if group is None else group_from(group),
            "workflow_run": workflow_run,
            "run_step": run_step,
            "plan": plan,
            "doc": None,
            "step_params": dict(handler.params),
            "ctx": context,
        }
        run_params: Mapping[str, Any] = {} if workflow_run is None else workflow_run.run_params
        return await function.call({**run_params, **handler.params, **known})
