"""Create the opendal operator of a configuration; errors name the wrong setting."""

from __future__ import annotations

import atexit
import functools
import re
import time
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.errors import ConfigurationError

if TYPE_CHECKING:
    from opendal import AsyncOperator

    from lexigram.blobs.config import BlobConfig

# They can neither rename nor write at once: a half blob would be readable.
_NOT_ATOMIC = frozenset({"ftp"})
# Nothing on the way to them fails for a moment only.
_LOCAL = frozenset({"fs", "memory"})
_RETRIES = 4  # after about 0.2, 0.4, 0.8 and 1.6 seconds
_PEACE_SECONDS = 0.05
_SCHEME = re.compile(r"""Literal\[["']([\w-]+)["']\]""")


def make_operator(config: BlobConfig) -> AsyncOperator:
    """The operator. Makes the folder of ``fs``, so it is called in a thread."""
    try:
        import opendal
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"blob storage needs the package {missing.name}, which is not installed",
            hint='pip install "lexigram[blobs]"',
        ) from missing

    _leave_in_peace()
    known = _list_services()
    scheme = config.scheme
    if scheme not in known:
        raise ConfigurationError(
            f"opendal has no service {scheme!r}{_near(scheme, known)}",
            hint=f"blobs.scheme is one of: {', '.join(sorted(known))}",
        )
    if scheme in _NOT_ATOMIC:
        raise ConfigurationError(
            f"{scheme} cannot write a blob all at once",
            hint="take fs, s3 or another service that can rename or replaces objects whole",
        )
    _check_options(config, known[scheme])
    options = dict(config.options)
    if "root" in known[scheme]:
        options.setdefault("root", config.root)
    try:
        operator = opendal.AsyncOperator(scheme, **options)
    except Exception as error:  # opendal's errors have no common base
        text = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"the blob store {scheme} cannot be set up: {text}",
            hint="correct blobs.root and blobs.options",
        ) from error
    if scheme in _LOCAL:
        return operator
    # A busy object store answers 500 or 503 now and then and asks to be tried again.
    return operator.layer(opendal.layers.RetryLayer(max_times=_RETRIES, min_delay=0.2, jitter=True))


def _check_options(config: BlobConfig, known: Mapping[str, Any]) -> None:
    # opendal itself ignores an option it does not know, and a typing error with it.
    for name in config.options:
        if name not in known or name == "scheme":
            raise ConfigurationError(
                f"{config.scheme} has no option {name!r}{_near(name, known)}",
                hint=f"there are: {', '.join(sorted(set(known) - {'scheme'}))}",
            )


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _list_services() -> dict[str, Mapping[str, Any]]:
    """The services of opendal with their options, as its typed configuration lists them."""
    from opendal import config

    services: dict[str, Mapping[str, Any]] = {}
    for kind in vars(config).values():
        # Read, not evaluated: they name things that only type checkers import.
        options = getattr(kind, "__annotations__", {})
        named = _SCHEME.search(str(options.get("scheme", "")))
        if named is not None:
            services[named[1]] = options
    return services


@functools.cache
def _leave_in_peace() -> None:
    """At the end of the process let opendal's threads finish, once it was used.

    A thread of its runtime lets go of the last answer a moment after the answer came. A Python
    that is ending in that moment kills the thread inside the library, which aborts the process:
    seen in 7 of 80 short programs, in none of 150 with this.
    """
    atexit.register(time.sleep, _PEACE_SECONDS)
