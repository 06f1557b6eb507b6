"""Names the commands, generators and checks; their code is loaded on use."""

from __future__ import annotations

from collections.abc import Sequence

from lexigram.cli.contributors.base import BaseCliContributor
from lexigram.contracts.cli import (
    CommandContribution,
    DoctorCheckContribution,
    GeneratorDefinition,
    HealthCheckContribution,
    ShellContextContribution,
)

_ID = "workflow"
_GENERATORS = "lexigram.workflow.cli.generators"


class WorkflowCliContributor(BaseCliContributor):
    """``lexigram workflow``, and generators for workflows, pipelines and sagas."""

    def get_commands(self) -> Sequence[CommandContribution]:
        """The group ``workflow``, and ``worker``."""
        return (
            CommandContribution(
                name="worker",
                help="Work on durable runs until a signal, then drain.",
                app_factory_path="lexigram.workflow.cli.worker:create_worker_app",
                contributor=_ID,
                category=_ID,
            ),
            CommandContribution(
                name="workflow",
                help="List, run, look at and resume workflows and durable runs.",
                app_factory_path="lexigram.workflow.cli.commands:create_workflow_app",
                contributor=_ID,
                category=_ID,
                requires_app_context=True,
            ),
        )

    def get_generators(self) -> Sequence[GeneratorDefinition]:
        """A workflow, a pipeline, a saga: each runs as it is written."""
        return (
            GeneratorDefinition(
                name="workflow_def",
                title="Workflow",
                description="A graph with two nodes, marked with @workflow.",
                contributor=_ID,
                generator_path=f"{_GENERATORS}:WorkflowGenerator",
                category=_ID,
                default_output_dir="src/workflows",
            ),
            GeneratorDefinition(
                name="pipeline",
                title="Pipeline",
                description="A pipeline with the steps you name, marked with @workflow.",
                contributor=_ID,
                generator_path=f"{_GENERATORS}:PipelineGenerator",
                category=_ID,
                options={"steps": "Names of the steps, with commas between them."},
                default_output_dir="src/pipelines",
            ),
            GeneratorDefinition(
                name="saga_step",
                title="Saga",
                description="A saga with steps and compensations, marked with @workflow.",
                contributor=_ID,
                generator_path=f"{_GENERATORS}:SagaGenerator",
                category=_ID,
                options={"steps": "Names of the steps, with commas between them."},
                default_output_dir="src/sagas",
            ),
        )

    def get_health_checks(self) -> Sequence[HealthCheckContribution]:
        """A graph, a pipeline and a saga are really run."""
        return (
            HealthCheckContribution(
                name="workflow_engine_status",
                check_path="lexigram.workflow.cli.checks:check_workflow_engine",
                contributor=_ID,
                category=_ID,
                timeout=5.0,
            ),
        )

    def get_doctor_checks(self) -> Sequence[DoctorCheckContribution]:
        """Definitions, and handlers that durable runs wait for and no live worker has."""
        return (
            DoctorCheckContribution(
                name="workflow_definitions",
                check_path="lexigram.workflow.cli.checks:check_definitions",
                contributor=_ID,
                category=_ID,
                requires_app_context=True,
            ),
            DoctorCheckContribution(
                name="workflow_handlers",
                check_path="lexigram.workflow.cli.checks:check_handlers",
                contributor=_ID,
                category=_ID,
                requires_app_context=True,
            ),
        )

    def get_shell_context(self) -> Sequence[ShellContextContribution]:
        """``workflow``: the workflows of the application."""
        return (
            ShellContextContribution(
                name="workflow",
                description="The workflows of the application.",
                factory_path="lexigram.workflow.cli.shell:provide_workflow_engine",
                contributor=_ID,
            ),
        )
