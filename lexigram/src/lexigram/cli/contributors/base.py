"""A contributor that contributes nothing yet: subclass it and override what you add."""

from __future__ import annotations

from collections.abc import Sequence

from lexigram.contracts.cli import (
    CommandContribution,
    DoctorCheckContribution,
    GeneratorDefinition,
    HealthCheckContribution,
    ShellContextContribution,
)


class BaseCliContributor:
    """Implements ``CliContributorProtocol`` with empty answers."""

    @property
    def contributor_id(self) -> str:
        """The class name without ``CliContributor``, in lower case."""
        name = type(self).__name__
        return (name.removesuffix("CliContributor") or name).lower()

    def get_commands(self) -> Sequence[CommandContribution]:
        """Command groups."""
        return ()

    def get_generators(self) -> Sequence[GeneratorDefinition]:
        """Code generators."""
        return ()

    def get_health_checks(self) -> Sequence[HealthCheckContribution]:
        """Checks of what the package needs outside."""
        return ()

    def get_doctor_checks(self) -> Sequence[DoctorCheckContribution]:
        """Checks of the set-up."""
        return ()

    def get_shell_context(self) -> Sequence[ShellContextContribution]:
        """Names for the interactive shell."""
        return ()
