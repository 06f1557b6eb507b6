"""Names for what a test makes on a shared server: who made it can be told from the name."""

import os
import re
import secrets

# Set by tests/run.py to its own process, so that all workers of a run share one owner.
RUN_VARIABLE = "LEXIGRAM_TEST_RUN"
_MADE_BY_A_TEST = re.compile(r"lex[-_](?P<pid>\d+)[-_][0-9a-f]{8}")


def unique_name() -> str:
    """A name for a stream, vhost, exchange or key prefix of this test alone."""
    return f"lex-{os.environ.get(RUN_VARIABLE) or os.getpid()}-{secrets.token_hex(4)}"


def unique_identifier() -> str:
    """A name for a schema, database or user of this test alone; it needs no quotes in SQL."""
    return unique_name().replace("-", "_")


def owner_of(name: str) -> int | None:
    """The process, or the run, that made the name; None where no test did."""
    found = _MADE_BY_A_TEST.match(name)
    return int(found["pid"]) if found else None


def is_abandoned(name: str) -> bool:
    """True for a name of a test whose process has ended."""
    owner = owner_of(name)
    return owner is not None and has_ended(owner)


def has_ended(owner: int) -> bool:
    """True for a process, or a run, that is no more."""
    try:
        os.kill(owner, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it runs, under another user
    return False
