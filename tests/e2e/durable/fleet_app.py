"""An application for fleets: ``lexigram worker fleet_app:create``, database by LEX_SQL__URL."""

import random

import anyio

from lexigram.app import Application
from lexigram.sql import Database, SqlModule
from lexigram.workflow import WorkflowModule


async def work(run_step, workflow_run, database: Database):
    """A little work, and a row that it was done."""
    await anyio.sleep(random.random() * 0.2)
    await database.execute(
        "INSERT INTO effects (what, id) VALUES (?, ?)", (run_step.workflow_step_name, run_step.id)
    )
    return {"doc": workflow_run.doc_id}


async def slow(run_step):
    """Work that is cut off by a stop."""
    await anyio.sleep(600)


async def note_end(event, database: Database):
    """The end of a group."""
    await database.execute(
        "INSERT INTO effects (what, id) VALUES (?, ?)", ("group_end", event.group_id)
    )


def create() -> Application:
    return Application("fleet", modules=[SqlModule, WorkflowModule])
