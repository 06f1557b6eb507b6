"""What the three extensions promise alike: their module binds its configuration and tells so."""

from importlib.metadata import entry_points

import anyio
import pytest

from lexigram.ai.workers import WorkersConfig, WorkersModule
from lexigram.ai.workers import constants as workers_constants
from lexigram.app import Application
from lexigram.config import LexigramConfig
from lexigram.contracts.core import HealthStatus
from lexigram.queue import NamedQueueConfig, QueueConfig, QueueModule
from lexigram.queue import constants as queue_constants
from lexigram.workflow import WorkflowConfig, WorkflowModule
from lexigram.workflow import constants as workflow_constants

EXTENSIONS = [
    pytest.param(QueueModule, QueueConfig, queue_constants, id="queue"),
    pytest.param(WorkflowModule, WorkflowConfig, workflow_constants, id="workflow"),
    pytest.param(WorkersModule, WorkersConfig, workers_constants, id="ai_workers"),
]


@pytest.mark.parametrize(("module", "config", "constants"), EXTENSIONS)
async def test_the_bare_module_binds_the_defaults_of_its_section(module, config, constants):
    async with Application("shop", modules=[module], config=LexigramConfig()) as app:
        assert app.container.get(config) == config()


@pytest.mark.parametrize(("module", "config", "constants"), EXTENSIONS)
async def test_an_explicit_configuration_is_bound_as_it_is(module, config, constants):
    given = config()
    async with Application("shop", modules=[module.configure(given)]) as app:
        assert app.container.get(config) is given


@pytest.mark.parametrize(("module", "config", "constants"), EXTENSIONS)
async def test_a_stub_is_healthy_and_says_what_it_has(module, config, constants):
    async with Application("shop", modules=[module.stub()]) as app:
        health = await app.health_check()
    assert health.components
    for component in health.components:
        assert component.status is HealthStatus.HEALTHY
        assert component.message


@pytest.mark.parametrize(("module", "config", "constants"), EXTENSIONS)
def test_the_module_is_offered_by_an_entry_point(module, config, constants):
    (point,) = entry_points(group="lexigram.modules", name=constants.CONFIG_SECTION)
    assert point.load() is module


@pytest.mark.parametrize(("module", "config", "constants"), EXTENSIONS)
def test_the_names_of_the_section_agree(module, config, constants):
    assert config.config_section == constants.CONFIG_SECTION
    delimiter = constants.ENV_NESTED_DELIMITER
    assert f"LEX_{config.config_section.upper()}{delimiter}" == constants.ENV_PREFIX


async def test_all_extensions_live_in_one_application():
    modules = [QueueModule.stub(), WorkflowModule.stub(), WorkersModule.stub()]
    async with Application("shop", modules=modules) as app:
        assert (await app.health_check()).status is HealthStatus.HEALTHY
        for config in (QueueConfig, WorkflowConfig, WorkersConfig):
            assert isinstance(app.container.get(config), config)


def test_the_primary_backend_is_the_marked_one_else_the_first():
    first, second = NamedQueueConfig(name="a"), NamedQueueConfig(name="b", primary=True)
    assert QueueConfig(backends=[first, second]).primary is second
    assert QueueConfig.from_named_backend(first).primary is first
    assert QueueConfig().primary is None


def test_two_backends_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two backends are named orders"):
        QueueConfig(backends=[NamedQueueConfig(name="orders"), NamedQueueConfig(name="orders")])


def test_two_primary_backends_are_refused():
    backends = [NamedQueueConfig(name=name, primary=True) for name in ("a", "b")]
    with pytest.raises(ValueError, match="only one backend can be primary, not a and b"):
        QueueConfig(backends=backends)


def test_installed_extensions_are_found_by_an_application_that_asks_for_them():
    app = Application("shop", LexigramConfig())
    app.discover_modules(enabled=["queue", "workflow", "ai_workers"])  # reads files: not in a loop

    async def look():
        async with app:
            for config in (QueueConfig, WorkflowConfig, WorkersConfig):
                assert app.container.get(config) == config()

    anyio.run(look)
