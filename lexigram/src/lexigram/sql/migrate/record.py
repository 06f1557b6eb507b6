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
    def head(self) -> str | None:
        """The newest revision; None where there is no migration yet."""
        return next(reversed(self.files), None)


@lru_cache(maxsize=64)
def _files(distribution: str, package: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(_folder(distribution, package).glob("*.py")):
        if file.name == "__init__.py":
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
