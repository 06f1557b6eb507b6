"""How a package adds commands, generators and checks to the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lexigram.contracts.cli.types import (
        CommandContribution,
        DoctorCheckContribution,
        GeneratorDefinition,
        HealthCheckContribution,
        ShellContextContribution,
    )


@runtime_checkable
class CliContributorProtocol(Protocol):
    """Named by the entry point ``lexigram.cli.contributors`` and made without arguments.

    Its methods may be called in any order, more than once and on every start of the command
    line: they return constants and import nothing heavy. A contributor that raises is reported
    and left out; it never stops the command line. A name that is already taken keeps its first
    owner, and the clash is reported.
    """

    @property
    def contributor_id(self) -> str:
        """Unique among contributors."""
        ...

    def get_commands(self) -> Sequence[CommandContribution]:
        """Command groups; empty when there are none."""
        ...

    def get_generators(self) -> Sequence[GeneratorDefinition]:
        """Code generators; empty when there are none."""
        ...

    def get_health_checks(self) -> Sequence[HealthCheckContribution]:
        """Checks of what the package needs outside; empty when there are none."""
        ...

    def get_doctor_checks(self) -> Sequence[DoctorCheckContribution]:
        """Checks of the set-up; empty when there are none."""
        ...

    def get_shell_context(self) -> Sequence[ShellContextContribution]:
        """Names for the interactive shell; empty when there are none."""
        ...
