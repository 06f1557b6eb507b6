"""A graph of the post office."""

from __future__ import annotations

import os
from typing import Any

from lexigram.workflow.graph import WorkflowBuilder

DATABASE = "parcels.db"


async def pack(state: dict[str, Any]) -> dict[str, Any]:
    """The first node."""
    report("pack", state)
    return {"parcel": f"a parcel for {state['input']}"}


async def weigh(state: dict[str, Any]) -> dict[str, Any]:
    """Runs beside ``insure``, perhaps in another process."""
    report("weigh", state)
    return {"grams": 100 * len(state["input"])}


async def insure(state: dict[str, Any]) -> dict[str, Any]:
    """Runs beside ``weigh``."""
    report("insure", state)
    return {"insured": True}


async def send(state: dict[str, Any]) -> dict[str, Any]:
    """The last node."""
    report("send", state)
    return {"output": f"{state['parcel']}, {state['grams']} g, {state['said']}"}


def report(node: str, state: dict[str, Any]) -> None:
    """Print which process runs the node."""
    print(f"{node} for {state['input']} in process {os.getpid()}", flush=True)


def build() -> WorkflowBuilder:
    """The same in every process."""
    graph = WorkflowBuilder("parcel")
    graph.add_node("pack", pack).add_node("weigh", weigh).add_node("insure", insure)
    graph.add_node("ask", human_prompt="send {parcel} of {grams} g?", output_key="said")
    graph.add_node("send", send)
    graph.add_edge("pack", "weigh").add_edge("pack", "insure")
    graph.add_edge("weigh", "ask").add_edge("insure", "ask").add_edge("ask", "send")
    return graph.set_entry("pack").set_terminal("send")
