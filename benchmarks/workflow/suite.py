"""Orchestration in one process against LangGraph, pydantic-graph, Burr, transitions and the plain loop."""

from __future__ import annotations

from collections.abc import AsyncIterator

from harness import Facts, Plan, Section

from workflow import graphs, pipelines, steps

TITLE = "Orchestration"
PEERS = (
    *("langgraph", "langgraph-checkpoint-sqlite", "pydantic-graph", "apache-burr"),
    *("transitions", "python-statemachine"),
)


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    for area in (graphs, pipelines, steps):
        async for part in area.parts(plan):
            yield part
