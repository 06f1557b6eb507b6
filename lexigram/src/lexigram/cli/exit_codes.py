"""What the exit code of a command says; docs/reference/cli.md shows the same table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Every exit code of the command line."""

    OK = 0
    # Something failed while it ran: a boot, a check of the set-up, a generator.
    FAILURE = 1
    # The command line or the configuration is wrong; nothing was started.
    USAGE = 2
    # The object graph of the application is invalid; nothing was started.
    INVALID_GRAPH = 3
    # The application runs, but something it needs does not work.
    UNHEALTHY = 4
    # A part was done, and what was not is named: some files of an ingestion failed.
    PARTIAL = 5
    # Ctrl-C.
    INTERRUPTED = 130
