"""Facts about what is installed here."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions

_NAME = re.compile(r"[\w.-]+")
_EXTRA = re.compile(r"\bextra\s*==\s*['\"]([\w-]+)['\"]")


def lexigram_distributions() -> list[Distribution]:
    """The installed distributions of the framework, by name."""
    found = {
        item.name: item
        for item in distributions()
        if item.name == "lexigram" or item.name.startswith("lexigram-")
    }
    return [found[name] for name in sorted(found)]


def installed_distributions() -> dict[str, str]:
    """Name -> version of the installed distributions of the framework."""
    return {item.name: item.version for item in lexigram_distributions()}


def missing_extras(item: Distribution) -> dict[str, list[str]]:
    """Extra -> its requirements that are not installed."""
    missing: dict[str, list[str]] = {}
    for requirement in item.requires or ():
        name = _NAME.match(requirement)
        extra = _EXTRA.search(requirement.partition(";")[2])
        if name and extra and not _is_installed(name[0]):
            missing.setdefault(extra[1], []).append(name[0])
    return missing


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
