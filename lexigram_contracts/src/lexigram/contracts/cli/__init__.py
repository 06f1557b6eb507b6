"""Contracts of the command line."""

from lexigram.contracts.cli.protocols import CliContributorProtocol
from lexigram.contracts.cli.types import (
    CommandContribution,
    DoctorCheckContribution,
    DoctorResult,
    DoctorStatus,
    GeneratorDefinition,
    HealthCheckContribution,
    ShellContextContribution,
)

__all__ = [
    "CliContributorProtocol",
    "CommandContribution",
    "DoctorCheckContribution",
    "DoctorResult",
    "DoctorStatus",
    "GeneratorDefinition",
    "HealthCheckContribution",
    "ShellContextContribution",
]
