"""The migrations of all installed distributions, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import EntryPoint, entry_points

from lexigram.sql.errors import MigrationSetupError
from lexigram.sql.migrate.record import Migrations

GROUP = "lexigram.migrations"
CORE = "lexigram"


@cache  # reading the metadata of all distributions takes 10 to 20 ms
def installed_migrations() -> tuple[Migrations, ...]:
    """What the entry points offer. Raises MigrationSetupError for one that is broken.

    Blocks the first time; after that nothing is read, not even the names of the files.
    """
    return with_files(in_order(_load(point) for point in sorted(entry_points(group=GROUP))))


def with_files(migrations: tuple[Migrations, ...]) -> tuple[Migrations, ...]:
    """The same, with the names of their files looked up."""
    for item in migrations:
        item.files  # noqa: B018 - it is cached
        item.bridges  # noqa: B018 - see above
    return migrations


def in_order(migrations: Iterable[Migrations]) -> tuple[Migrations, ...]:
    """The core first, then each after what it requires, then by name."""
    known: dict[str, Migrations] = {}
    for item in sorted(migrations, key=lambda item: item.distribution):
        if item.distribution in known:
            raise MigrationSetupError(
                f"{item.distribution} offers its migrations twice",
                hint=f"one entry point in the group {GROUP} is enough",
            )
        known[item.distribution] = item
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for name, item in known.items():
        sorter.add(name, *_requirements(item, known))
    try:
        return tuple(known[name] for name in _order(sorter))
    except CycleError as error:
        raise MigrationSetupError(
            f"distributions require each other's migrations: {' → '.join(error.args[1])}",
            hint="take one of them out of `requires=`",
        ) from None


def _order(sorter: TopologicalSorter[str]) -> Iterator[str]:
    """Like static_order, but the same order in every process."""
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        yield from ready
        sorter.done(*ready)


def select(migrations: Sequence[Migrations], only: str | None) -> tuple[Migrations, ...]:
    """One distribution with all it requires, in order; all of them for None."""
    if only is None:
        return tuple(migrations)
    known = {item.distribution: item for item in migrations}
    if only not in known:
        raise MigrationSetupError(
            f"no installed distribution {only!r} has migrations",
            hint=f"there are: {', '.join(known) or 'none'}",
        )
    wanted, pending = {only}, [only]
    while pending:
        new = _requirements(known[pending.pop()], known) - wanted
        wanted |= new
        pending += new
    return tuple(item for item in migrations if item.distribution in wanted)


def _requirements(item: Migrations, known: dict[str, Migrations]) -> set[str]:
    for name in item.requires:
        if name not in known:
            raise MigrationSetupError(
                f"{item.distribution} requires the migrations of {name}, which offers none here",
                details={"distribution": item.distribution, "requires": name},
                hint=f"install {name}, or correct `requires=` of {item.distribution}",
            )
    core = {CORE} if CORE in known and item.distribution != CORE else set()
    return {*item.requires} | core


def _load(point: EntryPoint) -> Migrations:
    package = point.dist.name if point.dist else "an installed package"
    try:
        found = point.load()
    except Exception as error:
        raise MigrationSetupError(
            f"the migrations of {package} ({point.value}) cannot be loaded: {error}",
            details={"distribution": package, "entry_point": point.value},
            hint=f"repair or uninstall {package}",
        ) from error
    if isinstance(found, Migrations):
        return found
    raise MigrationSetupError(
        f"{point.value}, named by {package} in the group {GROUP}, is no Migrations record",
        details={"distribution": package, "entry_point": point.value},
        hint="write MIGRATIONS = Migrations(...), from lexigram.sql.migrate",
    )
