"""The embedded application of `lexigram ingest` and `lexigram search`, for projects without one."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lexigram.cli.errors import CliError

if TYPE_CHECKING:
    from lexigram.ai.workers.vectors.choose import VectorStores
    from lexigram.app import Application
    from lexigram.cli.session import Session
    from lexigram.config import LexigramConfig
    from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol

T = TypeVar("T")

FOLDER: Final = ".lexigram"
_LANCEDB: Final = "lancedb"
INDEX: Final = Path(FOLDER) / _LANCEDB  # relative to the working directory
NAME: Final = "lexigram-files"
_SECTIONS: Final = ("sql", "blobs", "cache", "workflow", "ai_workers")
# The lease of a run expires after this; the heartbeat has its own thread.
_LEASE_SECONDS = 10.0
_HEARTBEAT_SECONDS = 2.0
_STALE_SECONDS = 600.0  # no local file takes longer to write
# The summary lists every failed file with its reason, so they are not logged as well.
_LEVELS: Final = {
    f"lexigram.workflow.durable.worker.{module}": "CRITICAL" for module in ("pools", "steps")
}
_STOP_SECONDS = 5.0  # after Ctrl-C, for in-flight documents; the process exits within ten


def choose_application(session: Session, target: str | None, data: Path | None) -> Application:
    """Load the application of the project, else create the embedded one (always with ``data``)."""
    if data is None and (named := session.optional_application(target)) is not None:
        return named
    session.application = create_embedded_application(data or Path(FOLDER))
    return session.application


def run_search(
    session: Session,
    target: str | None,
    data: Path | None,
    search: Callable[[VectorStores, EmbeddingProviderProtocol], Awaitable[T]],
) -> T:
    """Call ``search`` with the index and the model of the project, else of the embedded application.

    Of the embedded application only these two are opened: a search needs no database, no runs and
    no workers, whose start takes longer than the search. Raises CliError if its folder is missing.
    """
    if data is None and session.optional_application(target) is not None:
        return _search_in_application(session, search)
    folder = data or Path(FOLDER)
    if not folder.exists():
        raise CliError(
            f"no index found in {folder}",
            hint="run `lexigram ingest PATH` first, with the same --data",
        )
    return _search_in_folder(session, folder, search)


def _search_in_application(
    session: Session, search: Callable[[VectorStores, EmbeddingProviderProtocol], Awaitable[T]]
) -> T:
    from lexigram.ai.workers.vectors.choose import VectorStores
    from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol

    async def call(stores: VectorStores | None, embeddings: EmbeddingProviderProtocol | None) -> T:
        if stores is None or embeddings is None:
            raise CliError(
                f"{session.application.name} has no AI workers",
                hint="add WorkersModule to its modules",
            )
        return await search(stores, embeddings)

    call.__annotations__ = {  # read by the container at run time
        "stores": VectorStores | None,
        "embeddings": EmbeddingProviderProtocol | None,
    }
    result: T = session.run(call)
    return result


def _search_in_folder(
    session: Session,
    folder: Path,
    search: Callable[[VectorStores, EmbeddingProviderProtocol], Awaitable[T]],
) -> T:
    from lexigram.ai.workers.config import WorkersConfig
    from lexigram.ai.workers.constants import CONFIG_SECTION
    from lexigram.ai.workers.embeddings.choose import close_embeddings, open_embeddings
    from lexigram.ai.workers.vectors.choose import VectorStores

    loaded = _load_settings(folder.absolute())
    config = loaded.get_section(CONFIG_SECTION, WorkersConfig)

    async def call() -> T:
        async with AsyncExitStack() as stack:
            stores = VectorStores(config.vectors)
            stack.push_async_callback(stores.close)
            embeddings = await open_embeddings(config.embeddings)
            stack.push_async_callback(close_embeddings, embeddings)
            return await search(stores, embeddings)

    # No code of the user ran and all is closed: at exit, the garbage collector would only walk
    # through the libraries, for 0.1 s.
    atexit.register(gc.freeze)
    return session.run_async(call, loaded.logging)


def create_embedded_application(folder: Path) -> Application:
    """Create an application with SQLite, blobs and LanceDB in one folder, and the wordllama model.

    ``application.yaml`` in the folder and LEX_ variables override these settings. Raises CliError
    if lexigram-workflow is not installed or the folder cannot be created.
    """
    from lexigram.ai.workers.module import WorkersModule
    from lexigram.app import Application
    from lexigram.blobs import BlobModule
    from lexigram.cache import CacheModule
    from lexigram.sql import SqlModule

    durable = _durable_module()
    folder = folder.absolute()
    _create_folder(folder)
    modules = [SqlModule, BlobModule, CacheModule, durable, WorkersModule]
    return Application(NAME, _load_settings(folder), modules=modules, background=False)


def _load_settings(folder: Path) -> LexigramConfig:
    """Load the settings of the folder, on top of those of the embedded application."""
    from attrs import evolve

    from lexigram.config import load_config

    config = load_config(base_path=folder)
    given = {name: config.sections[name] for name in _SECTIONS if name in config.sections}
    return evolve(
        config,
        sections=_merge_settings(_settings(folder), given),
        logging=evolve(config.logging, levels={**_LEVELS, **config.logging.levels}),
    )


def _settings(folder: Path) -> dict[str, Any]:
    lancedb = str(folder / _LANCEDB)
    return {
        "sql": {"url": f"sqlite:///{folder / 'lexigram.db'}"},
        "blobs": {"root": str(folder / "blobs"), "stale_upload_after": _STALE_SECONDS},
        # A persistent cache: of a changed file only the changed passages are embedded again.
        "cache": {"primary": {"backend": "sql"}},
        "workflow": {
            "durable": {
                "checkin_interval": _HEARTBEAT_SECONDS,
                "checkin_timeout": _LEASE_SECONDS,
                "stop_timeout": _STOP_SECONDS,
                "default_workflow_id": "batch",
                "lancedb_dir": lancedb,
            }
        },
        # The steps of the runs do the work: no queue, no maintenance, no dead letters of jobs.
        "ai_workers": {"enabled": False, "vectors": {"path": lancedb}},
    }


def _durable_module() -> Any:
    """Load the module by its entry point: extensions do not import each other."""
    from lexigram.app.discovery import installed_modules
    from lexigram.app.errors import AppStartupError

    try:
        return installed_modules(["workflow"])[0]
    except AppStartupError as error:
        raise CliError(
            "ingestion uses durable runs, but lexigram-workflow is not installed",
            hint='run pip install "lexigram-ai-workers[durable]"',
        ) from error


def _create_folder(folder: Path) -> None:
    """Create the folder with a .gitignore."""
    ignore = folder / ".gitignore"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise CliError(
            f"cannot write to {folder}: {error.strerror}",
            hint="make it writable, free disk space, or choose another folder with --data",
        ) from error


def _merge_settings(base: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings recursively; other values of ``upper`` replace those of ``base``."""
    merged = dict(base)
    for key, value in upper.items():
        old = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = _merge_settings(old, value) if both else value  # type: ignore[arg-type]
    return merged
