"""Steps that are undone when a later one fails, across crashes and processes."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import anyio

from lexigram.concurrency import call, call_sync
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.events.protocols import EventBusProtocol
from lexigram.contracts.workflow.errors import WorkflowNotFoundError
from lexigram.contracts.workflow.limits import MAX_SECONDS
from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.types import SagaState, SagaStep
from lexigram.hooks import HookRegistry
from lexigram.workflow._emitter import WorkflowEmitter
from lexigram.workflow._leases import LEASE_SECONDS
from lexigram.workflow._results import is_err, may_retry
from lexigram.workflow.saga._ownership import NotKept, ownership
from lexigram.workflow.saga._progress import CUT_OFF, Progress
from lexigram.workflow.saga.contexts import (
    SagaCompensationCompletedHook,
    SagaCompensationContext,
    SagaCompensationTriggeredHook,
    SagaStepContext,
    SagaStepExecutedHook,
    SagaStepFailedHook,
)
from lexigram.workflow.saga.errors import (
    SagaBusyError,
    SagaDefinitionError,
    SagaError,
    SagaVersionMismatchError,
)
from lexigram.workflow.saga.steps import marked_steps

__all__ = ["AbstractSaga", "SagaError", "SagaState", "SagaStep"]

EventT = TypeVar("EventT")

HOOK_SECONDS = 60.0  # for one call of a hook

_log = logging.getLogger(__name__)


class AbstractSaga(ABC, Generic[EventT]):
    """A saga: subclass it, define ``get_id()``, and add steps or mark methods with ``@saga_step``.

    With a store every finished step and compensation is stored before the next one begins, and
    ``resume()`` goes on after a crash: forwards, or undoing. The step at which the crash came is
    called again, so actions must bear that; when it then fails, it is undone too, because its
    first call may have happened. In a store that lends sagas (both of ours do) two processes
    never work on one saga. Store failures are raised; the saga can be resumed.
    """

    # Raise it when steps change; see ``upgrade``.
    VERSION: ClassVar[int] = 1

    def __init__(
        self,
        store: SagaStoreProtocol | None = None,
        *,
        lease: float = LEASE_SECONDS,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
        on_step_executed: SagaStepExecutedHook | None = None,
        on_step_failed: SagaStepFailedHook | None = None,
        on_compensation_triggered: SagaCompensationTriggeredHook | None = None,
        on_compensation_completed: SagaCompensationCompletedHook | None = None,
        hook_timeout: float = HOOK_SECONDS,
    ) -> None:
        if not lease > 0:
            raise SagaDefinitionError("a lease must be longer than 0 s", hint="say lease=30.0")
        if not hook_timeout > 0:
            raise SagaDefinitionError(
                f"hook_timeout is {hook_timeout!r} s", hint="give more than 0; math.inf is no limit"
            )
        self._store = store
        self._lease = lease
        self._emitter = WorkflowEmitter(type(self).__name__, "saga", events, hooks)
        self._on_step_executed = on_step_executed
        self._on_step_failed = on_step_failed
        self._on_compensation_triggered = on_compensation_triggered
        self._on_compensation_completed = on_compensation_completed
        self._hook_timeout = hook_timeout
        self._steps: list[SagaStep] = []
        self._reactions: list[tuple[type[Any], Callable[[Any], Awaitable[list[Any] | None]]]] = []
        self._progress = Progress(version=self.VERSION)
        self._owned: NotKept | None = None
        for step in marked_steps(self):
            self.add_step(step)

    # --- what a subclass says ---

    @abstractmethod
    def get_id(self) -> str:
        """The name of this saga in the store; the same in every process."""

    def snapshot(self) -> Mapping[str, Any]:
        """What steps learned and other steps need, JSON-ready: stored with every step."""
        return {}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` gave in the process that began the saga."""

    def upgrade(self, stored_version: int, data: dict[str, Any]) -> dict[str, Any] | None:
        """The data of an older version as this one needs it; None: it cannot be gone on with."""
        return None

    def equip(
        self,
        *,
        name: str | None = None,
        store: SagaStoreProtocol | None = None,
        events: EventBusProtocol | None = None,
        hooks: HookRegistry | None = None,
    ) -> None:
        """Use what an application has where the constructor was given nothing.

        ``name`` is how events and hooks call it. Raises SagaBusyError while it runs.
        """
        if self._owned is not None:
            raise SagaBusyError(self.get_id(), "this very object")
        if self._store is None:
            self._store = store
        if self._emitter.is_silent:
            self._emitter = WorkflowEmitter(name or type(self).__name__, "saga", events, hooks)

    # --- what it is ---

    @property
    def state(self) -> SagaState:
        """As this object knows it; PENDING before ``execute`` or ``resume``."""
        return self._progress.state

    @property
    def steps(self) -> tuple[SagaStep, ...]:
        """The steps, in their order."""
        return tuple(self._steps)

    @property
    def completed_steps(self) -> tuple[str, ...]:
        """The steps that are done, undone ones included."""
        return tuple(self._progress.done)

    @property
    def compensation_errors(self) -> Mapping[str, str]:
        """Steps that could not be undone, and why."""
        return dict(self._progress.not_undone)

    def get_version(self) -> int:
        """``VERSION``."""
        return self.VERSION

    def is_compatible_with(self, version: int) -> bool:
        """Whether what that version stored can be gone on with as it is."""
        return version == self.VERSION

    def is_completed(self) -> bool:
        """True when every step is done and none was undone."""
        return self._progress.state is SagaState.COMPLETED

    def was_compensated(self, step_name: str) -> bool:
        """True when the step was undone."""
        return step_name in self._progress.undone

    def mark_compensated(self, step_name: str) -> None:
        """The step was undone by other means; its compensation is not called (any more)."""
        if step_name not in self._progress.undone:
            self._progress.undone.append(step_name)

    def add_step(self, step: SagaStep) -> None:
        """Add the next step. Raises SagaDefinitionError, a ValueError, for one that cannot be."""
        problem = None
        action: Any = step.action  # what a type checker would refuse comes from untyped code
        compensation: Any = step.compensation
        if any(other.name == step.name for other in self._steps):
            problem = "there is a step of this name; give each its own"
        elif not callable(action):
            problem = "action must be an async function"
        elif compensation is not None and not callable(compensation):
            problem = "compensation must be an async function or None"
        elif step.max_retries < 0 or not 0 <= step.retry_delay <= MAX_SECONDS:
            problem = f"max_retries must not be negative, retry_delay 0 to {MAX_SECONDS} s"
        elif step.timeout is not None and not step.timeout > 0:
            problem = "timeout must be longer than 0 s, or None"
        if problem is not None:
            raise SagaDefinitionError(f"step {step.name!r} of {type(self).__name__}: {problem}")
        self._steps.append(step)

    def on(
        self, event_type: type[EventT], reaction: Callable[[Any], Awaitable[list[Any] | None]]
    ) -> None:
        """React to events of a type in ``handle``; the reaction returns commands."""
        self._reactions.append((event_type, reaction))

    # --- what it does ---

    async def execute(self) -> Result[None, LexigramError]:
        """Run the steps in order, or go on where a stored saga of this id stands.

        Ok when all are done. Err(SagaError) when one failed and the others were undone, the
        same again for a saga that failed before; Err(SagaBusyError), Err(SagaVersionMismatchError)
        and Err(SagaDefinitionError) when it was left as it is.
        """
        return await self._owning(self._go_on, create=True, take_over=False)

    async def resume(self, *, take_over: bool = False) -> Result[None, LexigramError]:
        """Go on with a stored saga; Err(WorkflowNotFoundError) when there is none.

        ``take_over`` takes it from an owner whose lease still runs: only when that one is dead.
        """
        return await self._owning(self._go_on, create=False, take_over=take_over)

    async def compensate(self, *, take_over: bool = False) -> Result[None, LexigramError]:
        """Undo what is done, also of a saga that completed; try failed compensations again.

        Ok when nothing is left to undo.
        """
        return await self._owning(self._undo, create=False, take_over=take_over)

    # --- step by step, for callers that run each step elsewhere and store the progress ---

    async def try_step(self, name: str, attempt: int = 1) -> Err[Any] | None:
        """One attempt at a step; its failure or None. Neither stored nor counted here."""
        step = self._named(name)
        failure = await self._once(step, step.action, attempt)
        if failure is None:
            context = SagaStepContext(self.get_id(), name, attempt)
            await self._tell(step, self._on_step_executed, context)
        return failure

    async def try_compensation(self, name: str, reason: str, attempt: int = 1) -> Err[Any] | None:
        """One attempt to undo a step; its failure or None. Neither stored nor counted here."""
        step = self._named(name)
        if step.compensation is None:
            return None
        context = SagaCompensationContext(self.get_id(), name, reason)
        await self._tell(step, self._on_compensation_triggered, context)
        failure = await self._once(step, step.compensation, attempt)
        if failure is None:
            await self._tell(step, self._on_compensation_completed, context)
        return failure

    async def handle(self, event: EventT) -> list[Any]:
        """React to an event by what was given to ``on``; the commands to send.

        An event whose ``event_id`` was handled before gives none; one without is new each time. Raises what the reaction
        raises, and SagaBusyError: the event may be handled again then.
        """
        reactions = [act for kind, act in self._reactions if isinstance(event, kind)]
        if not reactions:
            return []
        commands: list[Any] = []

        async def react(owned: NotKept) -> Result[None, LexigramError]:
            event_id = str(getattr(event, "event_id", ""))
            if event_id and event_id in self._progress.handled:
                return Ok(None)
            for reaction in reactions:
                given = await call(reaction, event)
                commands.extend(given or [])
            if event_id:
                self._progress.handled.append(event_id)
            await self._save(owned)
            return Ok(None)

        if self._owned is not None:  # an event of this saga's own step
            await react(self._owned)
        elif isinstance(answer := await self._owning(react, create=True, take_over=False), Err):
            raise answer.error
        return commands

    # --- how ---

    async def _owning(
        self,
        work: Callable[[NotKept], Awaitable[Result[None, LexigramError]]],
        *,
        create: bool,
        take_over: bool,
    ) -> Result[None, LexigramError]:
        """Claim and load the saga, do the work, give it back."""
        if self._owned is not None:
            return Err(SagaBusyError(self.get_id(), "this very object"))
        owned = self._owned = ownership(self._store, self.get_id(), self._lease)
        try:
            stored = await owned.load(create=create, take_over=take_over)
            if stored is None and owned.is_kept and not create:
                return Err(WorkflowNotFoundError(self.get_id()))

            async def loaded_work() -> Result[None, LexigramError]:
                if isinstance(loaded := self._load(stored), Err):
                    return loaded
                return await work(owned)

            return await owned.run(loaded_work)
        except SagaBusyError as error:
            return Err(error)
        finally:
            self._owned = None

    async def _load_state(self) -> Result[tuple[SagaState, dict[str, Any]] | None, LexigramError]:
        """What is stored, without claiming it; Err when it belongs to another version."""
        stored = None if self._store is None else await self._store.load(self.get_id())
        return stored_err if isinstance(stored_err := self._load(stored), Err) else Ok(stored)

    def _load(self, stored: tuple[SagaState, dict[str, Any]] | None) -> Result[None, LexigramError]:
        if stored is None or (stored[0] is SagaState.PENDING and not stored[1]):
            return Ok(None)
        state, data = stored
        version = int(data.get("version", self.VERSION))
        if not self.is_compatible_with(version):
            upgraded = call_sync(self.upgrade, version, data)
            if upgraded is None:
                return Err(SagaVersionMismatchError(self.get_id(), self.VERSION, version))
            data = upgraded
        try:
            progress = Progress.from_data(self.get_id(), state, {**data, "version": self.VERSION})
            self._check(progress)
        except SagaDefinitionError as error:
            return Err(error)
        # What was marked by hand before the load counts.
        progress.undone += [name for name in self._progress.undone if name not in progress.undone]
        self._progress = progress
        call_sync(self.restore, progress.snapshot)
        return Ok(None)

    def _check(self, progress: Progress) -> None:
        names = [step.name for step in self._steps]
        unknown = [name for name in (*progress.done, *progress.undo) if name not in names]
        if unknown or progress.done != names[: len(progress.done)]:
            raise SagaDefinitionError(
                f"the steps of saga {self.get_id()!r} are {names}, "
                f"but stored as done are {progress.done}",
                hint="raise VERSION when steps change, and define upgrade()",
            )

    async def _save(self, owned: NotKept, *, last: bool = False) -> None:
        if owned.is_kept:
            progress = self._progress
            progress.snapshot = dict(call_sync(self.snapshot))
            await owned.save(progress.state, progress.to_data(), last=last)

    async def _go_on(self, owned: NotKept) -> Result[None, LexigramError]:
        state = self._progress.state
        if state is SagaState.COMPLETED:
            return Ok(None)
        if state is SagaState.FAILED:
            return Err(self._failure(self._progress.error))
        if state is SagaState.COMPENSATING:
            return await self._backward(owned, None)
        return await self._forward(owned, was_cut_off=state is SagaState.RUNNING)

    async def _forward(self, owned: NotKept, *, was_cut_off: bool) -> Result[None, LexigramError]:
        progress = self._progress
        if not was_cut_off:
            await self._move(owned, SagaState.RUNNING)
            await self._emitter.emit_started(self.get_id())
        kept = owned.is_kept
        hook = self._on_step_executed
        begin = len(progress.done)
        for step in self._steps[begin:]:
            attempt, failure = await self._attempt(step, step.action, step.max_retries + 1)
            if failure is not None:
                is_first = len(progress.done) == begin
                progress.begin_undo(step.name, failure.error, was_cut_off=was_cut_off and is_first)
                await self._move(owned, SagaState.COMPENSATING)
                return await self._backward(owned, failure.error)
            progress.done.append(step.name)
            if kept:
                await self._save(owned)
            if hook is not None:
                await self._tell(step, hook, SagaStepContext(self.get_id(), step.name, attempt))
        await self._move(owned, SagaState.COMPLETED)
        await self._emitter.emit_completed(self.get_id())
        return Ok(None)

    async def _undo(self, owned: NotKept) -> Result[None, LexigramError]:
        progress = self._progress
        if progress.state is SagaState.PENDING:
            return Ok(None)
        if progress.state is SagaState.FAILED:
            progress.undo = [
                name for name in reversed(progress.done) if name in progress.not_undone
            ]
            progress.undo = [
                *(name for name in progress.not_undone if name not in progress.done),
                *progress.undo,
            ]
            progress.not_undone = {}
        elif progress.state is not SagaState.COMPENSATING:
            next_step = [step.name for step in self._steps[len(progress.done) :]][:1]
            progress.undo = next_step + progress.done[::-1]
        if not progress.undo:
            return Ok(None)
        if progress.state is not SagaState.COMPENSATING:
            await self._move(owned, SagaState.COMPENSATING)
        await self._backward(owned, None)
        return Err(self._failure(progress.error)) if progress.not_undone else Ok(None)

    async def _backward(self, owned: NotKept, cause: object) -> Result[None, LexigramError]:
        progress = self._progress
        steps = {step.name: step for step in self._steps}
        while progress.undo:
            await self._undo_one(owned, steps[progress.undo[0]])
        await self._move(owned, SagaState.FAILED)
        error = self._failure(progress.error if cause is None else cause)
        await self._emitter.emit_failed(self.get_id(), error)
        return Err(error)

    async def _undo_one(self, owned: NotKept, step: SagaStep) -> None:
        progress = self._progress
        if step.compensation is None or step.name in progress.undone:
            progress.undo.pop(0)  # written with the next one, or with the end
            return
        context = SagaCompensationContext(self.get_id(), step.name, progress.error or "")
        if progress.undoing == step.name:
            failure: Err[Any] | None = Err(CUT_OFF)
        else:
            if not step.idempotent:
                progress.undoing = step.name
                await self._save(owned)
            await self._tell(step, self._on_compensation_triggered, context)
            attempts = step.max_retries + 1 if step.idempotent else 1
            _, failure = await self._attempt(step, step.compensation, attempts)
        progress.end_undo(step.name, failure)
        if failure is not None:
            _log.error(
                "saga %s: step %s is not undone: %s",
                *(self.get_id(), step.name, progress.not_undone[step.name]),
            )
        await self._save(owned)
        if failure is None:
            await self._tell(step, self._on_compensation_completed, context)

    async def _attempt(
        self, step: SagaStep, function: Callable[[], Awaitable[Any]], attempts: int
    ) -> tuple[int, Err[Any] | None]:
        """The number of the last attempt, and its failure or None."""
        attempt = 0
        while True:
            attempt += 1
            failure = await self._once(step, function, attempt)
            if failure is None or attempt >= attempts or not may_retry(failure):
                return attempt, failure
            await anyio.sleep(step.retry_delay)

    async def _once(
        self, step: SagaStep, function: Callable[[], Awaitable[Any]], attempt: int
    ) -> Err[Any] | None:
        try:
            name = f"step {step.name!r}"
            answer: Any = await call(function, timeout=step.timeout, name=name)
        except Exception as error:  # noqa: BLE001 - the boundary: it is the failure of the step
            answer = Err(error)
        if not is_err(answer):
            return None
        if self._on_step_failed is not None:
            context = SagaStepContext(self.get_id(), step.name, attempt)
            await self._tell(step, self._on_step_failed, context, answer.error)
        failed: Err[Any] = answer
        return failed

    def _named(self, name: str) -> SagaStep:
        return next(step for step in self._steps if step.name == name)

    async def _move(self, owned: NotKept, state: SagaState) -> None:
        old, self._progress.state = self._progress.state, state
        last = state in {SagaState.COMPLETED, SagaState.FAILED}
        try:
            await self._save(owned, last=last)
        except BaseException:
            self._progress.state = old
            raise
        await self._emitter.emit_moved(self.get_id(), old.value, state.value)

    async def _tell(
        self, step: SagaStep, hook: Callable[..., Awaitable[None]] | None, *facts: Any
    ) -> None:
        if hook is None:
            return
        try:
            name = f"a hook of step {step.name!r}"
            await call(hook, *facts, timeout=self._hook_timeout, name=name)
        except Exception:  # noqa: BLE001 - the boundary: who watches must not stop the saga
            _log.exception("saga %s: a hook failed; the saga goes on", self.get_id())

    def _failure(self, cause: object) -> SagaError:
        progress = self._progress
        name = progress.failed_step or next(iter(progress.not_undone), "")
        return SagaError(
            name,
            cause,
            saga_id=self.get_id(),
            compensation_errors=progress.not_undone,
        )
