"""Names that belong to the command line itself and cannot be taken by contributors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Who owns the names below, in reports of conflicts.
OWNER: Final = "lexigram"

# Command -> its line in the list of commands; the code is lexigram.cli.commands.<name>.
COMMANDS: Final[Mapping[str, str]] = {
    "new": "Make a new application in a folder of its own.",
    "run": "Run an application until it is stopped.",
    "serve": "Run an application and answer HTTP for it.",
    "inspect": "Inspect an application: modules, providers, container, graph, config, health.",
    "config": "Show, check and list the settings.",
    "db": "Upgrade the tables of a database, or look where they are.",
    "jobs": "Look at jobs, cancel, retry and run them, work on them.",
    "schedule": "Look at schedules, pause, resume and run them.",
    "generate": "Write code with a generator of an installed package.",
    "shell": "Start an application and talk to it.",
    "doctor": "Check the set-up of this machine and folder.",
    "version": "Show the installed versions.",
}

# Name at the prompt of the shell -> what it is.
SHELL_NAMES: Final[Mapping[str, str]] = {
    "app": "the application",
    "container": "its container",
}
