"""Values as people write them on a command line."""

from __future__ import annotations

from typing import Any

from lexigram.cli.errors import CliError


def parse_value(text: str, option: str = "a value") -> Any:
    """JSON where it is JSON, else the text itself.

    Raises CliError, with the name of the option, for JSON that is too deep and for numbers that
    JSON cannot hold.
    """
    import json

    from lexigram.serialization import LimitError, Limits

    try:
        value = json.loads(text)
        Limits().check_depth(value)  # how deep Python itself reads depends on its version
    except (RecursionError, LimitError):
        raise CliError(
            f"{option} of {len(text)} characters is nested too deeply to be read",
            hint="write fewer brackets inside each other",
        ) from None
    except ValueError:
        return text
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise CliError(
            f"{option}: {text[:80]!r} has a number that JSON cannot hold",
            hint="write finite numbers; a text in quotes",
        ) from None
    return value
