"""What a distribution says about its migrations, in one record named by an entry point."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from attrs import field, frozen

from lexigram.sql.errors import MigrationSetupError

# The name of a version table tells its distribution, also when that is not installed any more.
VERSION_TABLE_PREFIX = "migrations_of_"
_LONGEST = 63 - len(VERSION_TABLE_PREFIX)  # PostgreSQL cuts longer names off

_FILE = re.compile(r"(?P<revision>\d{4})_\w+\.py")
# Leads from a revision whose file was squashed to the start of the chain. Goes in 1.1.
_BRIDGE = re.compile(r"\d{4}_from_(?P<origin>\d{4})\.py")


def _is_distribution(_instance: object, _attribute: object, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or len(name) > _LONGEST:
        raise MigrationSetupError(
            f"{name!r} cannot be the distribution of migrations",
            hint=f"give the name of the installed package, at most {_LONGEST} characters",
        )


@frozen(kw_only=True)
class Migrations:
    """``MIGRATIONS = Migrations(...)``, offered in the entry point group ``lexigram.migrations``.

    The files are ``NNNN_what.py`` with ``upgrade()`` and ``downgrade()``; the number is the
    revision, and the order of the numbers is the chain.
    """

    distribution: str = field(validator=_is_distribution)
    # Package whose folder holds the files, such as "shop.migrations.versions".
    versions: str
    # Distributions whose tables must be there before; "lexigram" always is.
    requires: tuple[str, ...] = ()
    # MetaData objects as "module:name". All of them together give the same tables and rows as
    # the migrations. None at all is fine: the migrations are then run wherever tables are made.
    metadata: tuple[str, ...] = ()

    @property
    def version_table(self) -> str:
        """The table that says which revision the database has."""
        return VERSION_TABLE_PREFIX + re.sub(r"[-_.]+", "_", self.distribution).lower()

    @property
    def files(self) -> dict[str, Path]:
        """Revision -> file, oldest first; known from names, nothing is imported from there."""
        return _files(self.distribution, self.versions)

    @property
    def bridges(self) -> dict[str, Path]:
        """Revision whose file was squashed -> the file that leads from there to the start."""
        return _bridges(self.distribution, self.versions)

    def chain(self, origin: str | None) -> dict[str, Path]:
        """``files``, beginning with a bridge when ``origin`` has one."""
        if origin not in self.bridges:
            return self.files
        start = next(iter(self.files))
        return {**self.files, start: self.bridges[origin]}

    @property
    def head(self) -> str | None:
        """The newest revision; None where there is no migration yet."""
        return next(reversed(self.files), None)


@lru_cache(maxsize=64)
def _bridges(distribution: str, package: str) -> dict[str, Path]:
    files = sorted(_folder(distribution, package).glob("*.py"))
    return {match["origin"]: file for file in files if (match := _BRIDGE.fullmatch(file.name))}


@lru_cache(maxsize=64)
def _files(distribution: str, package: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(_folder(distribution, package).glob("*.py")):
        if file.name == "__init__.py" or _BRIDGE.fullmatch(file.name):
            continue
        match = _FILE.fullmatch(file.name)
        if match is None or match["revision"] in found:
            raise MigrationSetupError(
                f"{file} of {distribution} "
                + ("is not named NNNN_what.py" if match is None else "has a number twice"),
                details={"distribution": distribution, "file": str(file)},
                hint="give it the next free number: 0007_orders.py",
            )
        found[match["revision"]] = file
    return found


def _folder(distribution: str, package: str) -> Path:
    try:
        spec = find_spec(package)
    except ImportError:
        spec = None
    for place in (spec.submodule_search_locations if spec else None) or ():
        return Path(place)
    raise MigrationSetupError(
        f"the migrations of {distribution} are said to be in {package}, which is no package",
        details={"distribution": distribution, "package": package},
        hint="check `versions=` of its record, and that the folder is part of the installed package",
    )
