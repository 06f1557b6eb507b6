"""What the command line gets from the contributor besides its commands."""

import pytest

from lexigram.app import Application
from lexigram.cli.contributors.registry import load_contributed
from lexigram.contracts.cli import CliContributorProtocol
from lexigram.contracts.core.health import HealthStatus
from lexigram.workflow import WorkflowModule, Workflows
from lexigram.workflow.cli import WorkflowCliContributor

pytestmark = pytest.mark.anyio


async def test_the_shell_and_the_health_check_are_real():
    contributor = WorkflowCliContributor()
    assert isinstance(contributor, CliContributorProtocol)
    assert contributor.contributor_id == "workflow"
    (check,) = contributor.get_health_checks()
    result = await load_contributed("workflow", check.check_path)()
    assert result.status is HealthStatus.HEALTHY
    (shell,) = contributor.get_shell_context()
    provide = load_contributed("workflow", shell.factory_path)
    async with Application("x", modules=[WorkflowModule.stub()]) as app:
        assert isinstance(await provide(app.container), Workflows)
    async with Application("y") as app:
        assert await provide(app.container) is None


def test_everything_a_contributor_names_can_be_loaded():
    contributor = WorkflowCliContributor()
    for command in contributor.get_commands():
        assert load_contributed("workflow", command.app_factory_path)()
    for generator in contributor.get_generators():
        made = load_contributed("workflow", generator.generator_path)().generate("some-name")
        for text in made.values():
            compile(text, "made", "exec")
