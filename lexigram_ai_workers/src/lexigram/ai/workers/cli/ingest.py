"""``lexigram ingest``: ingest files into the vector index, and show the status."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.ai.workers.cli.embedded import FOLDER, choose_application
from lexigram.ai.workers.cli.files import shorten_path
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
        help="Application to load. Default: the one named in pyproject.toml, else the embedded one.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        file_okay=False,
        help=f"Folder of the embedded application. Default: {FOLDER}.",
    ),
]
Collection = Annotated[
    str | None, typer.Option("--collection", help="Collection of the index. Default: documents.")
]
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Files and folders; `status` shows past and running ingestions, `./status` is a path.",
    ),
]
_STATUS = "status"

app = typer.Typer(help="Ingest files into the vector index, or show the ingestion status.")


@app.command()
def ingest(
    ctx: typer.Context,
    paths: Paths,
    workflow: Annotated[
        str | None,
        typer.Option("--workflow", "-w", help="Workflow to run. Default: as configured."),
    ] = None,
    params: Annotated[
        str | None, typer.Option("--params", "-p", help="Parameter set. Default: as configured.")
    ] = None,
    collection: Collection = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Filter by file name; repeatable."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove documents whose files no longer exist.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and ingest changed files, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, help="Poll interval for --watch, in seconds.")
    ] = 2.0,
    target: Target = None,
    data: Data = None,
) -> None:
    """Ingest files: parse, chunk, embed and store each in a durable run.

    Unchanged files are skipped; interrupted runs resume. Exit code 1: all files failed; 5: some
    files failed, listed with the reason.
    """
    session = session_of(ctx)
    choose_application(session, target, data)
    if paths == [_STATUS]:
        unused: dict[str, object] = {
            "--workflow": workflow,
            "--params": params,
            "--include": include,
            "--prune": prune,
            "--watch": watch,
        }
        if given := [name for name, value in unused.items() if value]:
            raise CliError(
                f"`ingest status` does not take {', '.join(given)}",
                hint="omit it; to ingest a folder named status, write ./status",
            )
        _show_status(session, collection)
        return
    if missing := [path for path in paths if not os.path.lexists(path)]:
        raise CliError(f"path not found: {', '.join(missing)}", details={"paths": missing})
    from lexigram.ai.workers.cli.ingestion import Request

    request = Request(
        paths=[Path(path) for path in paths],
        workflow=workflow,
        params=params,
        collection=collection,
        include=include or (),
        prune=prune,
    )
    if watch:
        _watch(session, request, every)
        return
    outcome = _run(session, request)
    _print_outcome(session, outcome)
    raise typer.Exit(_exit_code(outcome))


def _run(session: Session, request: Request) -> Outcome:
    from lexigram.ai.workers.cli.display import display_progress

    async def work(ingestion: FileIngestion) -> Outcome:
        with display_progress(session.output) as report:
            return await ingestion.run(request, report)

    try:
        outcome: Outcome = _run_with_ingestion(session, work)
    except KeyboardInterrupt:
        session.output.warn("interrupted; run the same command to resume")
        raise
    return outcome


def _watch(session: Session, request: Request, every: float) -> None:
    """Ingest repeatedly; print one line, or one JSON document, per change."""
    import anyio
    from attrs import evolve

    from lexigram.ai.workers.cli.display import display_progress

    async def work(ingestion: FileIngestion) -> None:
        last: list[str] = []
        gone: set[str] = set()
        while True:
            with display_progress(session.output, at_once=False) as report:
                outcome = await ingestion.run(evolve(request, skip_recent_failures=True), report)
            bad = sorted(f"{failed.path}: {failed.reason}" for failed in outcome.bad)
            if outcome.indexed or outcome.removed or bad != last:
                session.output.line(_summarize(outcome), outcome.to_dict())
                for line in (
                    () if session.output.json else [text for text in bad if text not in last]
                ):
                    session.output.warn(line)
            if not request.prune and (more := set(outcome.gone) - gone):
                session.output.note(_describe_missing(len(more)))
            last, gone = bad, set(outcome.gone)
            await anyio.sleep(every)

    session.output.note("watching for changes; press Ctrl-C to stop")
    _run_with_ingestion(session, work)


def _run_with_ingestion(session: Session, work: Any) -> Any:
    """Run ``work`` in the application with a FileIngestion."""
    from lexigram.ai.workers.cli.ingestion import FileIngestion
    from lexigram.ai.workers.config import WorkersConfig
    from lexigram.ai.workers.statistics import IngestionStatistics
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
        statistics: IngestionStatistics | None,
    ) -> Any:
        if runs is None or blobs is None:
            raise CliError(
                f"{session.application.name} cannot ingest documents: it has no durable runs",
                hint="add SqlModule, BlobModule and WorkflowModule of"
                " lexigram-ai-workers[durable] to its modules",
            )
        if stores is None or config is None or embeddings is None or statistics is None:
            raise CliError(
                f"{session.application.name} has no AI workers",
                hint="add WorkersModule to its modules",
            )
        return await work(FileIngestion(runs, blobs, stores, config, embeddings, statistics))

    call.__annotations__ = {  # read by the container at run time
        "runs": DurableRunsProtocol | None,
        "blobs": BlobStoreProtocol | None,
        "stores": VectorStores | None,
        "config": WorkersConfig | None,
        "embeddings": EmbeddingProviderProtocol | None,
        "statistics": IngestionStatistics | None,
    }
    return session.run(call)


# --- output --------------------------------------------------------------------------------


def _exit_code(outcome: Outcome) -> ExitCode:
    if not outcome.bad and outcome.status == "COMPLETED":
        return ExitCode.OK
    return ExitCode.PARTIAL if outcome.indexed or outcome.unchanged else ExitCode.FAILURE


def _print_outcome(session: Session, outcome: Outcome) -> None:
    output, data = session.output, outcome.to_dict()
    if output.json:
        output.text("", data)
        return
    output.text(_summarize(outcome), data)
    if outcome.gone and not outcome.removed:
        output.note(_describe_missing(len(outcome.gone)))
    if outcome.bad:
        rows = [
            {"file": shorten_path(bad.path), "step": bad.step, "reason": bad.reason}
            for bad in outcome.bad
        ]
        output.table("failures", rows, ("file", "step", "reason"))


def _describe_missing(count: int) -> str:
    files = "1 file is" if count == 1 else f"{count} files are"
    return f"{files} in the index but no longer at the paths; remove with --prune"


def _summarize(outcome: Outcome) -> str:
    statistics, seconds = outcome.statistics, outcome.seconds
    removed = f", {outcome.removed} removed" if outcome.removed else ""
    text = (
        f"{outcome.files} file{'' if outcome.files == 1 else 's'}: {outcome.indexed} indexed, {outcome.unchanged} unchanged,"
        f" {len(outcome.bad)} failed{removed}; {statistics.stored} chunks"
        f" ({outcome.chunks_per_second:.0f}/s), {statistics.cache_hits} of {statistics.embedded}"
        f" vectors from the cache; {seconds:.1f} s"
    )
    return text if outcome.group is None else f"{text}; group {outcome.group} {outcome.status}"


# --- status --------------------------------------------------------------------------------------


def _show_status(session: Session, collection: str | None) -> None:
    from lexigram.ai.workers.cli.ingestion import INTERRUPTED

    async def work(ingestion: FileIngestion) -> dict[str, Any]:
        return await ingestion.status(collection)

    data = _run_with_ingestion(session, work)
    output = session.output
    if output.json:
        output.text("", data)
        return
    columns = ("group", "status", "paths", "files", "completed", "running", "pending", "failed")
    output.table("ingestions", [_build_row(item) for item in data["ingestions"]], columns)
    index = data["index"]
    output.note(
        f"index: {index['chunks']} chunks of {index['documents']} files in"
        f" {index['collection']}, model {index['model_id']}"
        if index
        else "the index is empty"
    )
    if any(item["status"] == INTERRUPTED for item in data["ingestions"]):
        output.note(f"{INTERRUPTED}: run the same command to resume")
    # A file may fail in several ingestions.
    failures = {
        (failure["file"], failure["step"], failure["reason"]): failure
        for item in data["ingestions"]
        for failure in item["failures"]
    }
    if failures:
        rows = [{**failure, "file": shorten_path(failure["file"])} for failure in failures.values()]
        output.table("failures", rows, ("file", "step", "reason"))
    if Path(_STATUS).exists():
        output.note("a path named status exists: ingest it with `lexigram ingest ./status`")


def _build_row(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "paths": ", ".join(shorten_path(path) for path in item["paths"])}
