"""The application that `lexigram ingest` and `lexigram search` use where the project names none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lexigram.cli.errors import CliError

if TYPE_CHECKING:
    from lexigram.app import Application
    from lexigram.cli.session import Session

FOLDER: Final = ".lexigram"
_LANCEDB: Final = "lancedb"
INDEX: Final = Path(FOLDER) / _LANCEDB  # from where a command runs
NAME: Final = "lexigram-files"
_SECTIONS: Final = ("sql", "blobs", "cache", "workflow", "ai_workers")
# A run that was killed is taken over after this; the heartbeat has a thread of its own.
_LEASE_SECONDS = 10.0
_BEAT_SECONDS = 2.0
_STALE_SECONDS = 600.0  # no file of one machine is written for longer
# Every failed file is in the summary, with its reason: no line of its own as well.
_LEVELS: Final = {"lexigram.workflow.durable.worker": "CRITICAL"}
_STOP_SECONDS = 10.0  # after Ctrl-C, for the documents at hand


def choose_application(
    session: Session, target: str | None, data: Path | None, *, must_exist: bool = False
) -> Application:
    """The application of the project, else the embedded one; ``data`` asks for the latter.

    ``must_exist``: raise CliError, and make no folder, where the embedded one was never used.
    """
    if data is None and (named := session.optional_application(target)) is not None:
        return named
    folder = data or Path(FOLDER)
    if must_exist and not folder.exists():
        raise CliError(
            f"there is no index in {folder}",
            hint="fill it: lexigram ingest PATH, and give --data as then",
        )
    session.application = embedded_application(folder)
    return session.application


def embedded_application(folder: Path) -> Application:
    """SQLite, blobs and LanceDB in one folder, with the model that is inside a wheel.

    ``application.yaml`` in the folder and LEX_ variables of its sections lie over the settings
    here. Raises CliError where lexigram-workflow is not installed.
    """
    from attrs import evolve

    from lexigram.ai.workers.module import WorkersModule
    from lexigram.app import Application
    from lexigram.blobs import BlobModule
    from lexigram.cache import CacheModule
    from lexigram.config import load_config
    from lexigram.sql import SqlModule

    durable = _durable_module()
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    _keep_out_of_git(folder)
    config = load_config(base_path=folder)
    given = {name: config.sections[name] for name in _SECTIONS if name in config.sections}
    config = evolve(
        config,
        sections=_laid_over(_settings(folder), given),
        logging=evolve(config.logging, levels={**_LEVELS, **config.logging.levels}),
    )
    modules = [SqlModule, BlobModule, CacheModule, durable, WorkersModule]
    return Application(NAME, config, modules=modules)


def _settings(folder: Path) -> dict[str, Any]:
    lancedb = str(folder / _LANCEDB)
    return {
        "sql": {"url": f"sqlite:///{folder / 'lexigram.db'}"},
        "blobs": {"root": str(folder / "blobs"), "stale_upload_after": _STALE_SECONDS},
        # Vectors outlive the process: a changed file costs the passages that changed.
        "cache": {"primary": {"backend": "sql"}},
        "workflow": {
            "durable": {
                "checkin_interval": _BEAT_SECONDS,
                "checkin_timeout": _LEASE_SECONDS,
                "stop_timeout": _STOP_SECONDS,
                "default_workflow_id": "batch",
                "lancedb_dir": lancedb,
            }
        },
        "ai_workers": {"vectors": {"path": lancedb}},
    }


def _durable_module() -> Any:
    """By entry point: packages of workers and workflows do not import each other."""
    from lexigram.app.discovery import installed_modules
    from lexigram.app.errors import AppStartupError

    try:
        return installed_modules(["workflow"])[0]
    except AppStartupError as error:
        raise CliError(
            "files are ingested by durable runs, and lexigram-workflow is not installed",
            hint='pip install "lexigram-ai-workers[durable]"',
        ) from error


def _keep_out_of_git(folder: Path) -> None:
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _laid_over(base: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge; everything else of ``upper`` replaces."""
    merged = dict(base)
    for key, value in upper.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _laid_over(below, value) if both else value  # type: ignore[arg-type]
    return merged
