"""What a package can add to the command line; code is named by path and loaded on use.

A path reads ``package.module:attribute``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class CommandContribution:
    """A command group: ``app_factory_path`` names a function that returns a typer app."""

    name: str
    help: str
    app_factory_path: str
    contributor: str
    category: str = "extension"
    hidden: bool = False
    # True: the application is loaded before the command runs.
    requires_app_context: bool = False


@dataclass(frozen=True)
class GeneratorDefinition:
    """A code generator: ``generator_path`` names a class with ``generate(name, **options)``."""

    name: str
    title: str
    description: str
    contributor: str
    generator_path: str
    category: str = "extension"
    # option name -> help text
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    default_output_dir: str = "src"


@dataclass(frozen=True)
class HealthCheckContribution:
    """A check of something outside: ``check_path`` names an async function without arguments
    that returns a HealthCheckResult.
    """

    name: str
    check_path: str
    contributor: str
    category: str = "extension"
    # seconds; a check that takes longer is UNHEALTHY
    timeout: float = 5.0
    # True: a failure makes the command exit with an error.
    critical: bool = False


@dataclass(frozen=True)
class DoctorCheckContribution:
    """A check of the set-up: ``check_path`` names a function, sync or async, that returns a
    DoctorResult.
    """

    name: str
    check_path: str
    contributor: str
    category: str = "extension"
    # seconds; a check that takes longer is an error
    timeout: float = 30.0
    # True: the function takes the application, which has registered and not started. The check is
    # left out where no application is named, or its graph is not valid.
    requires_app_context: bool = False


class DoctorStatus(StrEnum):
    """How a check of the set-up went."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class DoctorResult:
    """What a check of the set-up found, and what to try."""

    status: DoctorStatus
    message: str
    hint: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ShellContextContribution:
    """A name in the interactive shell: ``factory_path`` names a function, sync or async, that
    takes the booted container and returns the object.
    """

    name: str
    description: str
    factory_path: str
    contributor: str
    # seconds; what takes longer is left out
    timeout: float = 30.0
