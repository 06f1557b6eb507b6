"""Deliver stored events: to handlers that plans name, and to listeners of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup
from attrs import frozen

from lexigram.concurrency import as_failure
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.observability import get_logger
from lexigram.sql.leasing import Backoff, lease_token
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import DurableError, HandlerMissingError, PlanInvalidError
from lexigram.workflow.durable.handlers import StepHandler
from lexigram.workflow.durable.heart import Heart
from lexigram.workflow.durable.models import RunStep, WorkflowRun, group_from
from lexigram.workflow.durable.plan import LifeCycleEvent, LifecycleHandler, RunPlan
from lexigram.workflow.durable.store import Audience, GroupEvent, Handled

logger = get_logger(__name__)

Listener = Callable[[GroupEvent], Awaitable[None]]

_AT_ONCE = 4  # events of one audience that a worker delivers side by side
_HANDLER_SECONDS = 5.0  # between looks for events of plans though nobody told of any
_CLEANUP_SECONDS = 5.0  # to give back what a stop cut off
_AGAIN = Backoff(first=1.0, cap=300.0)
_ELSEWHERE_SECONDS = 5.0  # until another worker may have the handler that this one has not
_TEXT = 10_000  # characters of an error that are kept
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


# Called with what happened, and with how to make the notice if somebody wants it.
Publish = Callable[[LifeCycleEvent, Callable[[], RunNotice]], Awaitable[None]]


class EventContext:
    """The event that is handled, for its handler: the parameter ``ctx``."""

    def __init__(self, attempt: int, heartbeat: Callable[[], Awaitable[bool]]) -> None:
        # 1 for the first
        self.attempt = attempt
        self._heartbeat = heartbeat
        self.cancelled = False

    async def heartbeat(self) -> bool:
        """Renew the lease now; False when another worker has the event. Done by the worker too."""
        return await self._heartbeat()


class Deliveries:
    """What one worker does about events; each is leased, and kept while it is delivered.

    A handler of a plan is called until it succeeds once or has no attempt left; each has a row in
    the history. A listener is called until it succeeds. A crash in between repeats the call that
    was under way and nothing that is written as done. No order is promised between events.
    """

    def __init__(
        self,
        engine: DurableEngine,
        worker_id: str,
        heart: Heart,
        handler: Callable[[str], StepHandler],
        listeners: Mapping[LifeCycleEvent, Listener],
        poll_interval: float,
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._heart = heart
        self._handler = handler
        self._listeners = listeners
        self._poll_interval = poll_interval
        self._held: dict[tuple[int, str], anyio.CancelScope] = {}
        self._news = {audience: asyncio.Event() for audience in Audience}
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_closed = False

    def start(self, tasks: TaskGroup, supervise: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Begin to look for events; ends with the task group."""
        self.is_closed = False
        self._supervise = supervise
        tasks.start_soon(supervise, self._deliver_on, tasks, Audience.HANDLER, _HANDLER_SECONDS)
        if self._listeners:
            tasks.start_soon(
                supervise, self._deliver_on, tasks, Audience.LISTENER, self._poll_interval
            )

    def look(self) -> None:
        """There may be events now."""
        for news in self._news.values():
            news.set()

    def close(self) -> None:
        """Take no more; ``idle`` tells when those under way are done."""
        self.is_closed = True

    def lost(self, events: Sequence[tuple[int, str]]) -> None:
        """Somebody else has these now: what is done about them here counts nothing."""
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
            tasks.start_soon(self._supervise, self._deliver, event, audience, scope, free)

    async def _take(self, audience: Audience) -> GroupEvent | None:
        kinds = list(self._listeners) if audience is Audience.LISTENER else list(LifeCycleEvent)
        seconds = self._engine.terms.lease
        taken = await self._engine.take_events(
            lease_token(), seconds=seconds, limit=1, kinds=kinds, audience=audience
        )
        return taken[0] if taken else None

    def _hold(self, event: GroupEvent) -> anyio.CancelScope:
        key = (event.id, event.lease)
        scope = self._held[key] = anyio.CancelScope()
        self._heart.events[key] = None
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
        try:
            with scope:
                if audience is Audience.LISTENER:
                    retry_in = await self._told(event)
                else:
                    retry_in = await self._handled(event)
        finally:
            with anyio.move_on_after(_CLEANUP_SECONDS, shield=True):
                await self._settle(event, retry_in)
            key = (event.id, event.lease)
            self._held.pop(key, None)
            self._heart.events.pop(key, None)
            free.release()
            if not self._held:
                self.idle.set()
            if retry_in:
                asyncio.get_running_loop().call_later(retry_in, self.look)

    async def _settle(self, event: GroupEvent, retry_in: float | None) -> None:
        try:
            await self._engine.settle_event(event, retry_in=retry_in)
        except DurableError as error:
            logger.warning("an event is not settled and comes again", error=str(error))

    # --- listeners ------------------------------------------------------------------------------

    async def _told(self, event: GroupEvent) -> float | None:
        try:
            await self._listeners[event.kind](event)
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            logger.warning(
                "a listener failed and is called again",
                event=event.kind,
                group=event.group_id,
                error=_text(failure),
                exc_info=failure,
            )
            return _AGAIN.delay(event.tries)
        return None

    # --- handlers of plans ----------------------------------------------------------------------

    async def _handled(self, event: GroupEvent) -> float | None:
        """All handlers of the event in their order; seconds to the next try when one needs it."""
        try:
            plan_id = await self._engine.store.plan_of_event(event)
            if plan_id is None:
                return None  # retention was here
            plan = await self._engine.plan(plan_id)
            known = {row.handler_no: row for row in await self._engine.store.handled(event.id)}
            waits: list[float | None] = []
            for number, handler in enumerate(plan.lifecycle.get(event.kind, ()), 1):
                if number in known and known[number].status in _DONE:
                    continue
                waits.append(await self._one(event, plan, number, handler, known.get(number)))
        except DurableError as error:
            logger.warning("cannot handle an event", event=event.kind, error=str(error))
            return _AGAIN.delay(event.tries)
        return max((wait for wait in waits if wait is not None), default=None)

    async def _one(
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
            return _ELSEWHERE_SECONDS
        store = self._engine.store
        if not await store.begin_handler(event, number, handler.name, self._worker_id):
            return None  # somebody else has it
        was_cut_off = before is not None and before.status is RunStatus.RUNNING
        attempt = (0 if before is None else before.attempts) + (0 if was_cut_off else 1)
        if was_cut_off and event.tries > self._engine.terms.max_lost:
            text = f"its workers died or were cut off {event.tries} times"
            await store.end_handler(event, number, RunStatus.FAILED, text, None)
            return None
        try:
            meta = _meta(await self._called(function, event, plan, handler, attempt))
        except BaseException as error:
            failure = as_failure(error)
            if failure is None:
                raise
            is_final = attempt >= handler.retries or isinstance(failure, PlanInvalidError)
            status = RunStatus.FAILED if is_final else RunStatus.ERROR
            facts = orjson.dumps({"error": type(failure).__name__}).decode()
            await store.end_handler(event, number, status, _text(failure), facts)
            logger.warning(
                "a lifecycle handler failed",
                event=event.kind,
                handler=handler.name,
                group=event.group_id,
                attempt=attempt,
                is_final=is_final,
                error=_text(failure),
                exc_info=failure,
            )
            return None if is_final else _AGAIN.delay(attempt)
        await store.end_handler(event, number, RunStatus.COMPLETED, "success", meta)
        return None

    async def _called(
        self,
        function: StepHandler,
        event: GroupEvent,
        plan: RunPlan,
        handler: LifecycleHandler,
        attempt: int,
    ) -> Any:
        store = self._engine.store
        group = await store.group(event.group_id)
        workflow_run = run_step = None
        if event.run_id is not None:
            workflow_run = await self._engine.run(event.run_id)
            steps = await self._engine.steps(event.run_id)
            run_step = next((s for s in steps if s.workflow_step_number == event.step_no), None)
        key = (event.id, event.lease)

        async def beat() -> bool:
            return bool(await self._engine.keep_events([key]))

        known = {
            "event": event,
            "run_group": None if group is None else group_from(group),
            "workflow_run": workflow_run,
            "run_step": run_step,
            "plan": plan,
            "doc": None,
            "step_params": dict(handler.params),
            "ctx": EventContext(attempt, beat),
        }
        run_params: Mapping[str, Any] = {} if workflow_run is None else workflow_run.run_params
        return await function.call({**run_params, **handler.params, **known})


def _meta(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        value = {"result": value}
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_TEXT]
