"""Who is asked for a yes, and how many have to give it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from attrs import field, frozen


class ApprovalStatus(StrEnum):
    """What became of one question."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    SKIPPED = "skipped"  # its condition did not hold, so it does not count


class ApprovalPolicy(StrEnum):
    """Whose yes is enough."""

    ALL = "all"
    ANY = "any"
    MAJORITY = "majority"  # more than half of those who are not skipped


# A person's name, or a function that decides by itself; it may take the context.
Approver: TypeAlias = str | Callable[..., bool | Awaitable[bool]]


@frozen
class ApprovalStep:
    """One question to one approver; left out when ``condition`` does not hold.

    Functions may take the context (in a graph: the state) or nothing.
    """

    name: str
    approver: Approver
    condition: Callable[..., Any] | None = None
    metadata: Mapping[str, Any] = field(factory=dict[str, Any])


def decided(policy: ApprovalPolicy, statuses: Mapping[str, ApprovalStatus]) -> bool | None:
    """The verdict, or None while it depends on who has not answered."""
    counted = [status for status in statuses.values() if status is not ApprovalStatus.SKIPPED]
    yes = counted.count(ApprovalStatus.APPROVED)
    no = counted.count(ApprovalStatus.REJECTED)
    if not counted:
        return True
    needed = {
        ApprovalPolicy.ALL: len(counted),
        ApprovalPolicy.ANY: 1,
        ApprovalPolicy.MAJORITY: len(counted) // 2 + 1,
    }[policy]
    if yes >= needed:
        return True
    return False if len(counted) - no < needed else None
