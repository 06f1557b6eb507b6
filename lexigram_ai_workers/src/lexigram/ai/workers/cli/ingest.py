"""``lexigram ingest``: bring files and folders into the index, and see how far that is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.ai.workers.cli.embedded import FOLDER, choose_application
from lexigram.ai.workers.cli.files import shown as shown_path
from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session, session_of

if TYPE_CHECKING:
    from lexigram.ai.workers.cli.ingestion import FileIngestion, Outcome, Request

Target = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="The application. Default: the one named in pyproject.toml, else the embedded one.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        file_okay=False,
        help=f"Folder of the embedded application. Default: {FOLDER}, where no other is named.",
    ),
]
Collection = Annotated[
    str | None, typer.Option("--collection", help="Of the index. Default: documents.")
]
Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="Files and folders; `lexigram ingest status` shows how far ingestions are.",
    ),
]
_STATUS = Path("status")

app = typer.Typer(help="Bring files into the index, and see how far that is.")


@app.command()
def ingest(
    ctx: typer.Context,
    paths: Paths,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", help="Default: as configured.")
    ] = None,
    params: Annotated[
        str | None, typer.Option("--params", "-p", help="Parameter set. Default: as configured.")
    ] = None,
    collection: Collection = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Only files with such names; repeatable."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove from the index what is gone from the paths.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on: ingest what changes, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, help="With --watch: seconds between two looks.")
    ] = 2.0,
    target: Target = None,
    data: Data = None,
) -> None:
    """Ingest files: parse, chunk, embed, store, each as a durable run.

    What is in the index as it is now is left alone, and what was interrupted goes on where it
    was. Exit code 1: every file failed; 5: some did, and each is named with its reason.
    """
    session = session_of(ctx)
    choose_application(session, target, data)
    if paths == [_STATUS]:
        _show_status(session)
        return
    if missing := [str(path) for path in paths if not path.exists()]:
        raise CliError(f"there is no {', '.join(missing)}", details={"paths": missing})
    from lexigram.ai.workers.cli.ingestion import Request

    request = Request(
        paths=paths,
        workflow=workflow,
        params=params,
        collection=collection,
        include=include or (),
        prune=prune,
    )
    if watch:
        _watched(session, request, every)
        return
    outcome = _run(session, request)
    _tell(session, outcome)
    raise typer.Exit(_exit_code(outcome))


def _run(session: Session, request: Request) -> Outcome:
    from lexigram.ai.workers.cli.display import shown

    async def work(ingestion: FileIngestion) -> Outcome:
        with shown(session.output) as tell:
            return await ingestion.run(request, tell)

    try:
        outcome: Outcome = _asked(session, work)
    except KeyboardInterrupt:
        session.output.warn("stopped; the same command goes on where it was")
        raise
    return outcome


def _watched(session: Session, request: Request, every: float) -> None:
    """Ingest again and again; one line, or one JSON document, for each time something changed."""
    import anyio
    from attrs import evolve

    from lexigram.ai.workers.cli.display import shown

    async def work(ingestion: FileIngestion) -> None:
        last: list[str] = []
        gone: set[str] = set()
        while True:
            with shown(session.output, at_once=False) as tell:
                outcome = await ingestion.run(evolve(request, patient=True), tell)
            bad = sorted(f"{one.path}: {one.reason}" for one in outcome.bad)
            if outcome.indexed or outcome.removed or bad != last:
                session.output.line(_sentence(outcome), outcome.to_dict())
                for line in () if session.output.json else [one for one in bad if one not in last]:
                    session.output.warn(line)
            if not request.prune and (more := set(outcome.gone) - gone):
                session.output.note(_gone(len(more)))
            last, gone = bad, set(outcome.gone)
            await anyio.sleep(every)

    session.output.note("watching; Ctrl-C ends it")
    _asked(session, work)


def _asked(session: Session, work: Any) -> Any:
    """Start the application with what ingestion needs, do the work, stop it."""
    from lexigram.ai.workers.cli.ingestion import FileIngestion
    from lexigram.ai.workers.config import WorkersConfig
    from lexigram.ai.workers.figures import IngestionFigures
    from lexigram.ai.workers.vectors.choose import VectorStores
    from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
    from lexigram.contracts.data.blobs import BlobStoreProtocol
    from lexigram.contracts.workflow.durable import DurableRunsProtocol

    async def call(
        runs: DurableRunsProtocol | None,
        blobs: BlobStoreProtocol | None,
        stores: VectorStores | None,
        config: WorkersConfig | None,
        embeddings: EmbeddingProviderProtocol | None,
        figures: IngestionFigures | None,
    ) -> Any:
        if runs is None or blobs is None:
            raise CliError(
                f"{session.application.name} has no durable runs of documents",
                hint="add SqlModule, BlobModule and WorkflowModule of"
                " lexigram-ai-workers[durable] to its modules",
            )
        if stores is None or config is None or embeddings is None or figures is None:
            raise CliError(
                f"{session.application.name} has no AI workers",
                hint="add WorkersModule to its modules",
            )
        return await work(FileIngestion(runs, blobs, stores, config, embeddings, figures))

    call.__annotations__ = {  # read by the container at run time
        "runs": DurableRunsProtocol | None,
        "blobs": BlobStoreProtocol | None,
        "stores": VectorStores | None,
        "config": WorkersConfig | None,
        "embeddings": EmbeddingProviderProtocol | None,
        "figures": IngestionFigures | None,
    }
    return session.run(call)


# --- what is said --------------------------------------------------------------------------------


def _exit_code(outcome: Outcome) -> ExitCode:
    if not outcome.bad and outcome.status.value == "COMPLETED":
        return ExitCode.OK
    return ExitCode.PARTIAL if outcome.indexed or outcome.unchanged else ExitCode.FAILURE


def _tell(session: Session, outcome: Outcome) -> None:
    output, facts = session.output, outcome.to_dict()
    if output.json:
        output.text("", facts)
        return
    output.text(_sentence(outcome), facts)
    if outcome.gone and not outcome.removed:
        output.note(_gone(len(outcome.gone)))
    if outcome.bad:
        rows = [
            {"file": shown_path(bad.path), "step": bad.step, "reason": bad.reason}
            for bad in outcome.bad
        ]
        output.table("failures", rows, ("file", "step", "reason"))


def _gone(count: int) -> str:
    files = "1 file is" if count == 1 else f"{count} files are"
    return f"{files} in the index and gone from the paths; --prune removes what is gone"


def _sentence(outcome: Outcome) -> str:
    figures, seconds = outcome.figures, outcome.seconds
    removed = f", {outcome.removed} removed" if outcome.removed else ""
    text = (
        f"{outcome.files} file{'' if outcome.files == 1 else 's'}: {outcome.indexed} indexed, {outcome.unchanged} unchanged,"
        f" {len(outcome.bad)} failed{removed}; {figures.stored} chunks"
        f" ({outcome.chunks_per_second:.0f}/s), {figures.cache_hits} of {figures.embedded}"
        f" vectors from the cache; {seconds:.1f} s"
    )
    return (
        text if outcome.group is None else f"{text}; group {outcome.group} {outcome.status.value}"
    )


# --- status --------------------------------------------------------------------------------------


def _show_status(session: Session) -> None:
    from lexigram.ai.workers.cli.ingestion import INTERRUPTED

    async def work(ingestion: FileIngestion) -> dict[str, Any]:
        return await ingestion.status()

    facts = _asked(session, work)
    output = session.output
    if output.json:
        output.text("", facts)
        return
    columns = ("group", "status", "paths", "files", "completed", "running", "pending", "failed")
    output.table("ingestions", [_row(one) for one in facts["ingestions"]], columns)
    index = facts["index"]
    output.note(
        f"index: {index['chunks']} chunks of {index['documents']} files in"
        f" {index['collection']}, model {index['model_id']}"
        if index
        else "the index is empty"
    )
    if any(one["status"] == INTERRUPTED for one in facts["ingestions"]):
        output.note(f"{INTERRUPTED}: the same command goes on where it was")
    failures = [failure for one in facts["ingestions"] for failure in one["failures"]]
    if failures:
        rows = [{**one, "file": shown_path(one["file"])} for one in failures]
        output.table("failures", rows, ("file", "step", "reason"))


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "paths": ", ".join(shown_path(path) for path in one["paths"])}
