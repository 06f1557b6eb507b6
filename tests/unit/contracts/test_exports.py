import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import lexigram.contracts
import lexigram.contracts.core

PACKAGES = ["lexigram.contracts"] + [
    found.name
    for found in pkgutil.walk_packages(lexigram.contracts.__path__, "lexigram.contracts.")
    if found.ispkg
]
LAZY = [lexigram.contracts, lexigram.contracts.core]


def defined_under(package):
    """Public classes of the modules directly inside the package."""
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.ispkg or found.name.rpartition(".")[2].startswith("_"):
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == found.name and name[0] != "_":
                yield name


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_exist_and_come_from_contracts(name):
    package = importlib.import_module(name)
    for public in package.__all__:
        origin = getattr(getattr(package, public), "__module__", "")
        # a union of our classes and a set of our enum: values, which know no module
        assert origin.startswith("lexigram.contracts") or public in {"Result", "CORE_CAPABILITIES"}


@pytest.mark.parametrize("name", PACKAGES[1:])
def test_all_lists_every_class_defined_in_the_package(name):
    package = importlib.import_module(name)
    assert set(defined_under(package)) <= set(package.__all__)


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_what_type_checkers_see_is_what_loads_at_run_time(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (branch,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (node.module, alias.name)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for _, name in seen} == set(package.__all__) == set(dir(package))
    for home, name in seen:
        assert getattr(package, name) is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_an_unknown_name_is_an_ordinary_attribute_error(package):
    message = f"module '{package.__name__}' has no attribute 'Nonsense'"
    with pytest.raises(AttributeError, match=message):
        package.Nonsense


def test_a_lazy_name_is_kept_after_its_first_use():
    lexigram.contracts.BusMessage
    assert "BusMessage" in vars(lexigram.contracts)


# Every contracts line of the list of import paths that users already write.
KNOWN_PATHS = {
    "lexigram.contracts": "JobProtocol TaskQueueProtocol",
    "lexigram.contracts.admin": "Stat StatContent Tone WidgetParams",
    "lexigram.contracts.admin.errors": "AdminError WidgetNotFoundError",
    "lexigram.contracts.admin.types": "WidgetViewModel",
    "lexigram.contracts.ai.exceptions": "AIError RAGError",
    "lexigram.contracts.ai.rag": "ChunkProtocol",
    "lexigram.contracts.core": "HealthStatus HookRegistryProtocol",
    "lexigram.contracts.core.health": "HealthStatus",
    "lexigram.contracts.core.provider": "ProviderPriority",
    "lexigram.contracts.data": "DatabaseProviderProtocol QueryResult",
    "lexigram.contracts.data.sql.database": "DatabaseProviderProtocol QueryResult",
    "lexigram.contracts.exceptions.base": "LexigramError",
    "lexigram.contracts.infra.cache.protocols": "CacheBackendProtocol",
    "lexigram.contracts.infra.tasks": "JobProtocol JobStatus TaskQueueError",
    "lexigram.contracts.infra.tasks.protocols": "TaskWorkerProtocol",
    "lexigram.contracts.observability.tracing": "TracerProtocol",
    "lexigram.contracts.queue": "QueueProtocol",
    "lexigram.contracts.queue.errors": "QueueError",
    "lexigram.contracts.queue.protocols": "QueueProtocol",
    "lexigram.contracts.queue.types": "BusMessage",
    "lexigram.contracts.workflow": (
        "PipelineProtocol SagaStoreProtocol SagaVersionMismatchError StateMachineProtocol "
        "StatePersistenceProtocol StateTransitionRecord"
    ),
    "lexigram.contracts.workflow.content_checkpoint": (
        "ContentCheckpointEntry ContentCheckpointKey ContentCheckpointStoreProtocol"
    ),
    "lexigram.contracts.workflow.protocols": "SagaState",
}

# Places that the seed documents name in their tables of contracts.
SEED_PATHS = {
    "lexigram.contracts.ai.errors": "AIError",
    "lexigram.contracts.core": "HookRegistryProtocol",
    "lexigram.contracts.core.health": "HealthCheckResult HealthStatus",
    "lexigram.contracts.data": "DatabaseProviderProtocol",
    "lexigram.contracts.data.vector.protocols": "VectorStoreProtocol",
    "lexigram.contracts.domain.events": "DomainEvent",
    "lexigram.contracts.infra.cache": "CacheBackendProtocol",
    "lexigram.contracts.infra.resilience": "CircuitBreakerProtocol",
    "lexigram.contracts.infra.tasks.protocols": "TaskQueueProtocol TaskWorkerProtocol",
    "lexigram.contracts.queue.protocols": "MessageConsumerProtocol QueueProtocol",
    "lexigram.contracts.queue.types": "BusMessage DeliveryGuarantee",
    "lexigram.contracts.workflow": (
        "ApprovalProtocol BulkProcessorProtocol ExecutionProtocol PipelineContextProtocol "
        "PipelineProtocol PipelineStepProtocol SagaProtocol SagaState SagaStep SagaStepError "
        "SagaStoreProtocol StateMachineProtocol StatePersistenceProtocol StateTransitionRecord "
        "WorkflowGraphProtocol WorkflowNodeProtocol"
    ),
}


@pytest.mark.parametrize(
    ("module", "name"),
    sorted(
        {
            (module, name)
            for paths in (KNOWN_PATHS, SEED_PATHS)
            for module, names in paths.items()
            for name in names.split()
        }
    ),
)
def test_import_paths_users_write_keep_working(module, name):
    assert hasattr(importlib.import_module(module), name)
