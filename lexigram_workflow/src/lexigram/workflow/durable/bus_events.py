"""Emit events of groups, runs and steps to hooks and the bus; built only for listeners."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import asdict, frozen

from lexigram.contracts.data.outbox import OutboxProtocol
from lexigram.contracts.queue import BusMessage
from lexigram.contracts.workflow.durable import RunStatus
from lexigram.hooks import HookRegistry

if TYPE_CHECKING:  # with it comes SQLAlchemy
    from lexigram.workflow.durable.plan import LifeCycleEvent

TOPIC: Final = "durable."


@frozen(kw_only=True)
class DurableEventHook:
    """What all of them have; listen to one of the classes below: ``hooks.on(RunFailedHook, f)``."""

    group_id: int
    # None for events of a group
    run_id: int | None = None
    # from 1; None for events of groups and runs
    step_no: int | None = None
    step: str | None = None
    step_type: str | None = None
    doc_id: str | None = None
    status: RunStatus
    message: str | None = None
    # which end of the group, or which attempt of all of the run
    number: int = 0


@frozen(kw_only=True)
class RunGroupStartedHook(DurableEventHook):
    """The first step of a group was claimed. Once per group."""


@frozen(kw_only=True)
class RunGroupEndedHook(DurableEventHook):
    """The last run of a group became final. Once per end, by one worker of all; kept in SQL."""


@frozen(kw_only=True)
class RunStartedHook(DurableEventHook):
    """The first step of a run was claimed by this process."""


@frozen(kw_only=True)
class RunEndedHook(DurableEventHook):
    """A run completed in this process."""


@frozen(kw_only=True)
class RunFailedHook(DurableEventHook):
    """A run failed in this process."""


@frozen(kw_only=True)
class StepStartedHook(DurableEventHook):
    """A step begins in this process."""


@frozen(kw_only=True)
class StepEndedHook(DurableEventHook):
    """A step completed in this process; not emitted for an error that is retried."""


@frozen(kw_only=True)
class StepFailedHook(DurableEventHook):
    """A step failed permanently in this process."""


# By the value of the lifecycle event.
HOOKS: Final[Mapping[str, type[DurableEventHook]]] = {
    "group_start": RunGroupStartedHook,
    "group_end": RunGroupEndedHook,
    "item_start": RunStartedHook,
    "item_end": RunEndedHook,
    "item_failed": RunFailedHook,
    "step_start": StepStartedHook,
    "step_end": StepEndedHook,
    "step_failed": StepFailedHook,
}


class DurableEventEmitter:
    """Emits events to hooks, and those named in ``published`` to the outbox as messages.

    The message for the end of a group has the same id in every process and every delivery.
    """

    def __init__(
        self,
        hooks: HookRegistry | None,
        outbox: OutboxProtocol | None,
        published: Collection[str],
    ) -> None:
        self._hooks = hooks
        self._outbox = outbox
        self._published = frozenset(published) if outbox is not None else frozenset[str]()

    def wants(self, event: LifeCycleEvent | str) -> bool:
        """Whether the event has a listener."""
        name = str(event)
        if name in self._published:
            return True
        return self._hooks is not None and self._hooks.wants(HOOKS[name])

    async def emit(self, event: LifeCycleEvent | str, **facts: Any) -> None:
        """Build and deliver the payload if the event has a listener; a failing outbox raises."""
        name = str(event)
        if not self.wants(name):
            return
        payload = HOOKS[name](**facts)
        if name in self._published and self._outbox is not None:
            body = {key: value for key, value in asdict(payload).items() if value is not None}
            message = BusMessage(id=_id(name, payload), topic=TOPIC + name, payload=body)
            await self._outbox.stage(message.topic, message)
        if self._hooks is not None and self._hooks.wants(type(payload)):
            await self._hooks.emit(payload)


def _id(name: str, payload: DurableEventHook) -> str:
    of_run = "" if payload.run_id is None else f"-run-{payload.run_id}"
    return f"durable-{name}-{payload.group_id}{of_run}-{payload.number}"
