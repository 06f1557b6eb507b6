"""Adds ``lexigram queue``, a generator and checks to the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lexigram.cli.contributors import BaseCliContributor
from lexigram.contracts.cli import (
    CommandContribution,
    DoctorCheckContribution,
    GeneratorDefinition,
    HealthCheckContribution,
    ShellContextContribution,
)

NAME: Final = "queue"


class QueueCliContributor(BaseCliContributor):
    """Implements ``CliContributorProtocol`` for the bus."""

    @property
    def contributor_id(self) -> str:
        """``queue``."""
        return NAME

    def get_commands(self) -> Sequence[CommandContribution]:
        """``lexigram queue``."""
        return [
            CommandContribution(
                "queue",
                "Inspect the bus, publish, pause groups, redrive dead letters.",
                "lexigram.queue.cli.commands:app",
                NAME,
                "messaging",
            )
        ]

    def get_generators(self) -> Sequence[GeneratorDefinition]:
        """``lexigram generate message_consumer``."""
        return [
            GeneratorDefinition(
                "message_consumer",
                "Generate Message Consumer",
                "Generate a consumer with a typed payload, ready for QueueModule.scope().",
                NAME,
                "lexigram.queue.cli.generators.message_consumer:MessageConsumerGenerator",
                options={
                    "queue": "The topic; default: the name in snake case.",
                    "broker": "The backend of the configuration; default: the primary one.",
                    "fields": "Fields of the payload, such as number:int,items:list[str].",
                },
                default_output_dir="src/consumers",
            )
        ]

    def get_health_checks(self) -> Sequence[HealthCheckContribution]:
        """Whether every configured broker answers."""
        return [
            HealthCheckContribution(
                "message_broker_connection",
                "lexigram.queue.cli.checks:check_broker_connection",
                NAME,
                "messaging",
                10.0,
                True,
            )
        ]

    def get_doctor_checks(self) -> Sequence[DoctorCheckContribution]:
        """Whether the configuration of the bus can work."""
        return [
            DoctorCheckContribution(
                "broker_url_configured",
                "lexigram.queue.cli.doctor:check_broker_configured",
                NAME,
                "messaging",
            )
        ]

    def get_shell_context(self) -> Sequence[ShellContextContribution]:
        """``bus`` at the prompt of ``lexigram shell``."""
        return [
            ShellContextContribution(
                "bus", "the control of the bus", "lexigram.queue.cli.shell:control", NAME
            )
        ]

    def get_hooks(self) -> Sequence[Any]:
        """None; kept for callers of the old line."""
        return ()
