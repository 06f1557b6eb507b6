"""Contributes the routes of durable runs to the web host; FastAPI is loaded on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexigram.contracts.core.di import ContainerResolverProtocol
from lexigram.workflow.durable.fleet import DurableFleet


class DurableRouteContributor:
    """Named by the entry point ``lexigram.web.contributors``."""

    @property
    def contributor_id(self) -> str:
        """What ``web.disabled_contributors`` calls it."""
        return "durable"

    def get_routers(self, container: ContainerResolverProtocol) -> Sequence[Any]:
        """The routes; none where the application has no durable runs."""
        resolver: Any = container
        if not resolver.sees(DurableFleet) or not resolver.get(DurableFleet).is_usable:
            return ()
        from lexigram.workflow.durable.web.batches import batches
        from lexigram.workflow.durable.web.documents import documents
        from lexigram.workflow.durable.web.orchestrated import orchestrations
        from lexigram.workflow.durable.web.runs import runs
        from lexigram.workflow.durable.web.sync_states import sync_states

        return (runs(), orchestrations(), batches(), documents(), sync_states())
