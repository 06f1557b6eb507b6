"""Ask several approvers and come to a verdict."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio

from lexigram.concurrency import call
from lexigram.contracts.workflow.protocols import ApprovalProtocol
from lexigram.workflow._limits import check_time_limit
from lexigram.workflow.approval.models import (
    ApprovalPolicy,
    ApprovalStatus,
    ApprovalStep,
    Approver,
    decided,
)
from lexigram.workflow.errors import WorkflowStepError


class ApprovalChain:
    """Questions and a policy. All approvers are asked at once; a verdict ends the asking.

    An approver who does not answer within ``timeout`` seconds is replaced by ``escalate_to``;
    without one, or when that one is silent too, the answer counts as no. An approver given by
    name needs an approver: ``approvals`` here, or an ``ApprovalNode``, which pauses its run.
    """

    def __init__(
        self,
        policy: ApprovalPolicy = ApprovalPolicy.ALL,
        *,
        timeout: float | None = None,
        escalate_to: Approver | None = None,
        approvals: ApprovalProtocol | None = None,
    ) -> None:
        check_time_limit("timeout", timeout)
        self.policy = ApprovalPolicy(policy)
        self.timeout = timeout
        self.escalate_to = escalate_to
        self.approvals = approvals
        self._steps: dict[str, ApprovalStep] = {}

    @property
    def steps(self) -> tuple[ApprovalStep, ...]:
        """The questions, in order."""
        return tuple(self._steps.values())

    def add_step(self, step: ApprovalStep) -> ApprovalChain:
        """Add a question; ValueError for a name that is taken."""
        if step.name in self._steps:
            raise ValueError(f"there are two approval steps {step.name!r}")
        self._steps[step.name] = step
        return self

    async def execute(
        self, context: Mapping[str, Any] | None = None, *, workflow_id: str = ""
    ) -> tuple[bool, dict[str, ApprovalStatus]]:
        """Ask; the verdict, and what each answered. Who was not needed any more is PENDING."""
        given: Mapping[str, Any] = {} if context is None else context
        statuses = self.opening(given)
        await self.ask(statuses, given, workflow_id)
        verdict = decided(self.policy, statuses)
        if verdict is None:
            names = [name for name, s in statuses.items() if s is ApprovalStatus.PENDING]
            raise WorkflowStepError(
                "approval",
                f"nobody can be asked for {', '.join(map(repr, names))}",
                hint="give approvals=, or put the chain into a graph with ApprovalNode",
            )
        return verdict, statuses

    def opening(self, context: Mapping[str, Any]) -> dict[str, ApprovalStatus]:
        """Every step PENDING, or SKIPPED where its condition does not hold."""
        return {
            step.name: ApprovalStatus.PENDING
            if step.condition is None or _call(step.condition, context)
            else ApprovalStatus.SKIPPED
            for step in self.steps
        }

    async def ask(
        self, statuses: dict[str, ApprovalStatus], context: Mapping[str, Any], workflow_id: str
    ) -> None:
        """Ask those who can be asked from here, and note their answers in ``statuses``."""
        host = asyncio.current_task()
        async with anyio.create_task_group() as group:
            for step in self.steps:
                can_ask = self._asking(step, step.approver, context, workflow_id)
                if statuses[step.name] is ApprovalStatus.PENDING and can_ask is not None:
                    given = step, statuses, context, workflow_id, group.cancel_scope, host
                    group.start_soon(self._ask_one, *given)

    async def _ask_one(
        self,
        step: ApprovalStep,
        statuses: dict[str, ApprovalStatus],
        context: Mapping[str, Any],
        workflow_id: str,
        scope: anyio.CancelScope,
        host: asyncio.Task[Any] | None,
    ) -> None:
        answer = False
        for approver in (step.approver, self.escalate_to):
            question = self._asking(step, approver, context, workflow_id)
            if question is None:
                continue
            with anyio.move_on_after(self.timeout) as limit:
                answer = bool(await call(question, host=host))
            if not limit.cancelled_caught:
                break
        statuses[step.name] = ApprovalStatus.APPROVED if answer else ApprovalStatus.REJECTED
        if decided(self.policy, statuses) is not None:
            await anyio.lowlevel.checkpoint()  # those who answer at this moment are heard too
            scope.cancel()

    def _asking(
        self,
        step: ApprovalStep,
        approver: Approver | None,
        context: Mapping[str, Any],
        workflow_id: str,
    ) -> Callable[[], Any] | None:
        """How to ask an approver from here; None when only a pause can."""
        if approver is None:
            return None
        if isinstance(approver, str):
            if self.approvals is None:
                return None
            facts = {**context, "approver": approver, **step.metadata}
            return partial(self.approvals.request_approval, workflow_id, step.name, facts)
        return partial(_await_value, approver, context)


async def _await_value(function: Callable[..., Any], context: Mapping[str, Any]) -> Any:
    answer = _call(function, context)
    return await answer if inspect.isawaitable(answer) else answer


def _call(function: Callable[..., Any], context: Mapping[str, Any]) -> Any:
    """Call with the context, or without where the function takes nothing."""
    try:
        takes_context = bool(inspect.signature(function).parameters)
    except ValueError:  # some builtins have no signature
        takes_context = True
    return function(context) if takes_context else function()
