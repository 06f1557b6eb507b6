"""The one place that knows alembic: files as its scripts, and scripts run on a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from attrs import frozen

from lexigram.contracts.core.errors import LexigramError
from lexigram.observability.errors import MissingLibraryError
from lexigram.sql.errors import MigrationError, MigrationSetupError
from lexigram.sql.migrate.record import Migrations
from lexigram.sql.url import Dialect

try:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import Script, ScriptDirectory
    from alembic.script.revision import RevisionMap
    from sqlalchemy import Connection
except ImportError as error:
    raise MissingLibraryError("a migration", "sql") from error


@frozen(kw_only=True)
class Migration:
    """One file."""

    distribution: str
    revision: str
    # First line of the file's docstring.
    title: str


OnMigration: TypeAlias = Callable[[Migration], object]


@frozen(kw_only=True)
class Scripts:
    """The imported migrations of one distribution. Blocks: made in a worker thread."""

    record: Migrations
    directory: ScriptDirectory

    @classmethod
    def load(cls, record: Migrations, origin: str | None = None) -> Scripts:
        """Import every file; the chain is made from their numbers.

        ``origin`` is a revision whose file was squashed: the chain begins with the bridge from it.
        """
        files = record.chain(origin)
        folder = next(iter(files.values())).parent if files else Path()
        directory = ScriptDirectory(folder, version_locations=[folder])
        directory.revision_map = RevisionMap(lambda: _scripts(record, origin))
        directory.revision_map.heads  # noqa: B018 - loads them here, not in the event loop
        return cls(record=record, directory=directory)

    def all(self) -> list[Migration]:
        """Every migration, oldest first."""
        return [self._migration(revision) for revision in self.record.files]

    def upgrade(self, connection: Connection, tell: OnMigration) -> None:
        """Run what is pending, in the transaction of the connection."""
        head = self.record.head
        if head is not None:
            self._run(connection, lambda at: self.directory._upgrade_revs(head, at), tell)  # noqa: SLF001 - what alembic's own command calls

    def downgrade(self, connection: Connection, target: str, tell: OnMigration) -> None:
        """Undo what came after ``target``, in the transaction of the connection."""
        self._run(connection, lambda at: self.directory._downgrade_revs(target, at), tell)  # noqa: SLF001 - see above

    def sql(self, dialect: Dialect, start: str | None) -> str:
        """The statements of all that comes after ``start``; no database is asked."""
        text = StringIO()
        with EnvironmentContext(
            Config(),
            self.directory,
            fn=lambda at, _: self.directory._upgrade_revs(self.record.head or "base", at),  # noqa: SLF001 - see above
            as_sql=True,
            starting_rev=start,
        ) as environment:
            environment.configure(
                dialect_name=dialect,
                output_buffer=text,
                literal_binds=True,
                version_table=self.record.version_table,
            )
            try:
                environment.run_migrations()
            except Exception as error:
                raise MigrationError(
                    f"a migration of {self.record.distribution} cannot be written as SQL: {error}",
                    details={"distribution": self.record.distribution},
                    hint="it looks at the database while it runs: use lexigram db upgrade",
                ) from error
        return text.getvalue().strip()

    def _run(
        self, connection: Connection, steps: Callable[[Any], Sequence[Any]], tell: OnMigration
    ) -> None:
        begun: list[str] = []

        def plan(at: Any, _: Any) -> Iterator[Any]:
            for step in steps(at):
                begun.append(
                    step.info.up_revision_id if step.is_upgrade else step.revision.revision
                )
                yield step

        def report_applied(*, step: Any, **_: Any) -> None:
            tell(self._migration(step.up_revision_id))

        with EnvironmentContext(Config(), self.directory, fn=plan) as environment:
            environment.configure(
                connection=connection,
                version_table=self.record.version_table,
                on_version_apply=report_applied,  # type: ignore[arg-type] # called by keywords
            )
            try:
                environment.run_migrations()
            except LexigramError:
                raise
            except Exception as error:
                raise self._migration_error(begun, error) from error

    def _migration(self, revision: str) -> Migration:
        return Migration(
            distribution=self.record.distribution,
            revision=revision,
            title=_title(self.directory.get_revision(revision)),
        )

    def _migration_error(self, begun: Sequence[str], error: Exception) -> MigrationError:
        distribution, revision = self.record.distribution, begun[-1] if begun else None
        return MigrationError(
            f"migration {revision or ''} of {distribution} failed: {error}",
            details={"distribution": distribution, "revision": revision},
            hint="nothing was changed: correct the migration or the data, and upgrade again",
        )


def _scripts(record: Migrations, origin: str | None) -> Iterator[Script]:
    before = origin if origin in record.bridges else None
    if before is not None:
        squashed = ModuleType(before)
        vars(squashed).update(revision=before, down_revision=None)
        yield Script(squashed, before, "")
    for revision, file in record.chain(origin).items():
        module = _import(record, revision, file)
        for name, value in (("revision", revision), ("down_revision", before)):
            if getattr(module, name, value) != value:
                raise MigrationSetupError(
                    f"{file} says {name} = {getattr(module, name)!r}, and its name says {value!r}",
                    details={"distribution": record.distribution, "file": str(file)},
                    hint=f"leave {name} out: the numbers of the files are the chain",
                )
            setattr(module, name, value)
        yield Script(module, revision, str(file))
        before = revision


def _import(record: Migrations, revision: str, file: Path) -> ModuleType:
    spec = spec_from_file_location(f"{record.versions}.{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise MigrationSetupError(
            f"migration {revision} of {record.distribution} cannot be imported: {error}",
            details={"distribution": record.distribution, "file": str(file)},
            hint=f"repair {file.name}, or install a sound {record.distribution}",
        ) from error
    is_bridge = file in record.bridges.values()  # what it makes, the start undoes
    for name in ("upgrade",) if is_bridge else ("upgrade", "downgrade"):
        if not callable(getattr(module, name, None)):
            raise MigrationSetupError(
                f"{file} has no function {name}()",
                details={"distribution": record.distribution, "file": str(file)},
                hint=f"write `def {name}() -> None:`; what cannot be undone raises there",
            )
    return module


def _title(script: Script) -> str:
    return (script.doc or "").strip().partition("\n")[0]
