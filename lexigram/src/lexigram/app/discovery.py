"""Find the modules that installed packages offer by entry point."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points

from lexigram.app.errors import AppStartupError
from lexigram.di.module import ModuleLike

MODULES_GROUP = "lexigram.modules"


def installed_modules(
    enabled: Collection[str] | None = None, disabled: Collection[str] = ()
) -> list[ModuleLike]:
    """The modules of installed packages, by name; ``enabled`` names the only ones wanted.

    A name that no package offers is an error, and so is a module that cannot be imported:
    an application must not start without a module that was enabled.
    """
    offered = {point.name: point for point in entry_points(group=MODULES_GROUP)}
    for name in [*(enabled or ()), *disabled]:
        if name not in offered:
            raise _unknown(name, offered)
    wanted = offered if enabled is None else enabled
    return [_load(offered[name]) for name in sorted(wanted) if name not in disabled]


def _load(point: EntryPoint) -> ModuleLike:
    try:
        loaded: ModuleLike = point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "an installed package"
        raise AppStartupError(
            f'module "{point.name}" of {package} cannot be imported: {error}',
            hint=f"repair or uninstall {package}, or leave it out: disabled=[{point.name!r}]",
        ) from error
    return loaded


def _unknown(name: str, offered: Collection[str]) -> AppStartupError:
    near = difflib.get_close_matches(name, offered, n=1)
    meant = f' (did you mean "{near[0]}"?)' if near else ""
    return AppStartupError(
        f'no installed package offers a module "{name}"{meant}',
        hint=f"there are: {', '.join(sorted(offered)) or 'none'}",
    )
