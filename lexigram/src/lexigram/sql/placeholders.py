"""``?`` placeholders, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

# Whatever may hold a question mark that is not a placeholder, then the placeholder itself.
# What is not closed reaches to the end, as in PostgreSQL: looking for the end of each of many that
# are not closed would take quadratic time. A $ inside a name begins nothing.
_TOKENS = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*(?:.*?\*/|.*)
      | (?<![\w$])\$((?:[^\W\d]\w*)?)\$(?:.*?\$\1\$|.*) | \?\? | \?""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=1024)
def number_placeholders(sql: str) -> str:
    """``?`` as ``$1``, ``$2``…; ``??`` as the operator ``?`` of PostgreSQL."""
    numbers = count(1)
    return _TOKENS.sub(lambda found: _replace(found.group(), numbers), sql)


def _replace(token: str, numbers: Iterator[int]) -> str:
    if token == "?":  # noqa: S105 - a token of SQL, not a password
        return f"${next(numbers)}"
    return "?" if token == "??" else token  # noqa: S105 - same
