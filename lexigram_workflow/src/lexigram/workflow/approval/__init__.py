"""Approvals: several people or functions, one verdict."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.workflow.approval.chain import ApprovalChain
    from lexigram.workflow.approval.models import ApprovalPolicy, ApprovalStatus, ApprovalStep
    from lexigram.workflow.approval.node import ApprovalNode
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.workflow.approval.chain": ["ApprovalChain"],
            "lexigram.workflow.approval.models": [
                "ApprovalPolicy",
                "ApprovalStatus",
                "ApprovalStep",
            ],
            "lexigram.workflow.approval.node": ["ApprovalNode"],
        },
    )

__all__ = ["ApprovalChain", "ApprovalNode", "ApprovalPolicy", "ApprovalStatus", "ApprovalStep"]
