"""The graph: write a letter, check it from two sides, ask a person, send it."""

from pathlib import Path

from lexigram.sql import Database
from lexigram.workflow.checkpoint import SqlCheckpointStore
from lexigram.workflow.graph import WorkflowBuilder, WorkflowEngine

DATABASE = Path("review.db")


def write(state: dict[str, object]) -> dict[str, object]:
    print("write")
    return {"text": f"Dear {state['input']}, your tea has arrived."}


def spelling(state: dict[str, object]) -> dict[str, object]:
    print("spelling")
    return {"notes": f"spelling of {len(str(state['text']))} characters is fine"}


def tone(state: dict[str, object]) -> dict[str, object]:
    print("tone")
    return {"notes": "tone is friendly" if "Dear" in str(state["text"]) else "tone is cold"}


def send(state: dict[str, object]) -> str:
    print("send")
    return f"{state['text']} ({state['answer']})"


def build(database: Database) -> WorkflowEngine:
    return (
        WorkflowBuilder("letter", version=1)
        .add_node("write", write)
        .add_node("spelling", spelling, writes={"notes"})
        .add_node("tone", tone, writes={"notes"})
        .add_node("ask", human_prompt="Send '{text}' {notes}?", output_key="answer")
        .add_node("send", send)
        .add_edge("write", "spelling")
        .add_edge("write", "tone")
        .add_edge("spelling", "ask")
        .add_edge("tone", "ask")
        .add_edge("ask", "send")
        .reduce("notes", "append")
        .set_entry("write")
        .set_terminal("send")
        .build(checkpoints=SqlCheckpointStore(database))
    )
