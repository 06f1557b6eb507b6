"""An approval as a node: the run pauses until the verdict is clear."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from lexigram.contracts.workflow.protocols import ApprovalProtocol
from lexigram.workflow.approval.chain import ApprovalChain
from lexigram.workflow.approval.models import ApprovalStatus, decided
from lexigram.workflow.errors import HumanInputRequiredError, WorkflowStepError
from lexigram.workflow.graph.node import AbstractWorkflowNode, NodeType
from lexigram.workflow.nodes._templates import rendered


class ApprovalNode(AbstractWorkflowNode):
    """Asks the steps of a chain; the verdict goes to ``output_key``, the answers to
    ``<name>_approvals``.

    Approvers that are functions are asked at once. For persons the run pauses:
    ``resume(run_id, {"legal": True})`` notes one answer or several, ``resume(run_id, True)`` is
    enough when one is missing. The chain's ``timeout`` is kept by ``engine.time_out_pauses()``:
    the question then goes to ``escalate_to``, whose ``True`` or ``False`` stands for all that
    are missing, and after that time again it is a no.
    """

    needs_visit = True

    def __init__(
        self,
        name: str,
        chain: ApprovalChain,
        *,
        prompt: str = "Approval needed.",
        output_key: str = "approved",
    ) -> None:
        super().__init__(name, NodeType.HUMAN)
        self._chain = chain
        self._prompt = prompt
        self._output_key = output_key
        self._answers_key = f"{name}_approvals"
        self.writes = frozenset({output_key, self._answers_key})

    def check_answer(self, response: Any, remembered: Mapping[str, Any]) -> None:
        """Refuse an answer that says nothing; called before it is stored."""
        self._note_decision(response, _statuses(remembered), bool(remembered.get("escalated")))

    def equip(self, *, approvals: ApprovalProtocol | None) -> ApprovalNode:
        """This node; persons are asked by these approvals where the chain has none of its own."""
        if approvals is None or self._chain.approvals is not None:
            return self
        other = copy.copy(self)
        other._chain = copy.copy(self._chain)  # noqa: SLF001 - a copy
        other._chain.approvals = approvals  # noqa: SLF001 - a copy
        return other

    async def execute(self, state: dict[str, Any]) -> dict[str, Any]:
        """The verdict, or a pause."""
        remembered = state.get("_pause")
        escalated = False
        if remembered:
            statuses, escalated = _statuses(remembered), bool(remembered["escalated"])
            if state.get("_timed_out"):
                escalated = self._time_out(statuses, escalated=escalated)
            else:
                statuses = self._note_decision(state["_answer"], statuses, escalated)
        else:
            statuses = self._chain.opening(state)
            await self._chain.ask(statuses, state, str(state.get("_run_id", "")))
        verdict = decided(self._chain.policy, statuses)
        if verdict is None:
            raise self._pause(state, statuses, escalated=escalated)
        answers = {name: status.value for name, status in statuses.items()}
        return {self._output_key: verdict, self._answers_key: answers}

    def _time_out(self, statuses: dict[str, ApprovalStatus], *, escalated: bool) -> bool:
        """Nobody answered: the next person, or no. Whether the next person is asked."""
        if not escalated and isinstance(self._chain.escalate_to, str):
            return True
        for name in _missing(statuses):
            statuses[name] = ApprovalStatus.REJECTED
        return escalated

    def _pause(
        self, state: Mapping[str, Any], statuses: Mapping[str, ApprovalStatus], *, escalated: bool
    ) -> HumanInputRequiredError:
        missing = _missing(statuses)
        by_name = {step.name: step.approver for step in self._chain.steps}
        asked = [self._chain.escalate_to] if escalated else [by_name[name] for name in missing]
        persons = ", ".join(dict.fromkeys(str(person) for person in asked))
        return HumanInputRequiredError(
            f"{rendered(self._prompt, state)} ({', '.join(missing)}: {persons})",
            node=self.name,
            remember={
                "statuses": {name: status.value for name, status in statuses.items()},
                "escalated": escalated,
            },
            timeout=self._chain.timeout,
        )

    def _note_decision(
        self, response: Any, statuses: Mapping[str, ApprovalStatus], escalated: bool
    ) -> dict[str, ApprovalStatus]:
        missing = _missing(statuses)
        if isinstance(response, bool) and (escalated or len(missing) == 1):
            response = dict.fromkeys(missing, response)
        if not isinstance(response, Mapping):
            raise WorkflowStepError(
                self.name,
                f"the answer {response!r} does not say whose it is",
                hint=f"answer with a mapping of {', '.join(map(repr, missing))} to True or False",
            )
        given: dict[str, Any] = dict(cast("Mapping[str, Any]", response))
        unknown = [name for name in given if name not in missing]
        unclear = [name for name, said in given.items() if not isinstance(said, bool)]
        if unknown or unclear or not given:
            raise WorkflowStepError(
                self.name,
                f"the answer {given!r} does not fit",
                hint=f"these are missing: {', '.join(map(repr, missing))}; say True or False",
            )
        yes, no = ApprovalStatus.APPROVED, ApprovalStatus.REJECTED
        return {**statuses, **{name: yes if said else no for name, said in given.items()}}


def _statuses(remembered: Mapping[str, Any]) -> dict[str, ApprovalStatus]:
    return {name: ApprovalStatus(said) for name, said in remembered["statuses"].items()}


def _missing(statuses: Mapping[str, ApprovalStatus]) -> list[str]:
    return [name for name, status in statuses.items() if status is ApprovalStatus.PENDING]
