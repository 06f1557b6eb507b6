"""Handlers of a filing office, and the application around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule
from lexigram.contracts.workflow.durable import ArtifactType, StepContextProtocol
from lexigram.sql import SqlConfig, SqlModule
from lexigram.workflow import WorkflowModule
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable.config import DurableConfig

HERE = Path(__file__).parent
group_ended = anyio.Event()


async def count(ctx: StepContextProtocol) -> dict[str, Any]:
    """Count the words of a note; what it returns is kept with the step."""
    text = (await ctx.artifact(ArtifactType.DOC).read()).decode()
    await ctx.artifact(ArtifactType.CUSTOM, "words").write(str(len(text.split())).encode())
    return {"words": len(text.split())}


async def file(ctx: StepContextProtocol, uri: str, shelf: str) -> dict[str, Any]:
    """File a note; the shelf is locked meanwhile, and jams now and then."""
    if uri == "note-2" and ctx.attempt == 1:
        raise OSError("the drawer is stuck")
    words = await ctx.artifact(ArtifactType.CUSTOM, "count words/words").read()
    return {"place": f"{shelf}/{uri}", "words": int(words)}


async def tell(message: str) -> None:
    """Called when every note of a group is filed."""
    print(message)
    group_ended.set()


def create(folder: str = ".") -> Application:
    """The application; database and blobs are in ``folder``."""
    place = Path(folder).absolute()
    durable = DurableConfig(
        workflow_dir=str(HERE / "workflows"),
        param_dir=str(HERE / "params"),
        default_workflow_id="notes",
        poll_interval=0.1,
    )
    return Application(
        "filing",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{place}/filing.db")),
            BlobModule.configure(BlobConfig(root=str(place / "blobs"))),
            WorkflowModule.configure(WorkflowConfig(durable=durable)),
        ],
    )
