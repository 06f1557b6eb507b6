"""Definitions and parameter sets: what is read, what is refused and where, what plans they make."""

import sys
from pathlib import Path

import anyio.to_thread
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from lexigram.workflow.durable.definitions._yaml import Document, read_params, read_workflow
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog
from lexigram.workflow.durable.definitions.model import (
    ParameterSet,
    StepDefinition,
    WorkflowDefinition,
    make_plan,
)
from lexigram.workflow.durable.definitions.registry import DefinitionFolders, DefinitionRegistry
from lexigram.workflow.durable.errors import (
    DefinitionExistsError,
    DefinitionInvalidError,
    DefinitionNotFoundError,
    DefinitionProtectedError,
)
from lexigram.workflow.durable.plan import LifeCycleEvent, RunPlan

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
HOME = Path.cwd()  # where relative folders are
TYPES = ["validate", "parse", "chunk", "embed", "store"]
# The seed's texts, as they are printed there.
BATCH = """\
id: batch
name: Batch Workflow
meta: {}

item_steps:
  validate:
    name: docling validate
    retries: 3
    method: soliplex.ingester.lib.workflow.validate_document
    parameters: {}

  parse:
    name: docling parse
    retries: 3
    method: soliplex.ingester.lib.workflow.parse_document
    parameters: {}

  chunk:
    name: docling chunk
    retries: 3
    method: soliplex.ingester.lib.workflow.chunk_document
    parameters: {}

  embed:
    name: embeddings
    retries: 3
    method: soliplex.ingester.lib.workflow.embed_document
    parameters: {}

  store:
    name: save to rag
    retries: 3
    method: soliplex.ingester.lib.workflow.save_to_rag
    parameters: {}

lifecycle_events:
  group_start:
    - name: log group start
      method: soliplex.ingester.lib.workflow.log_event
      retries: 1
      parameters:
        message: "Starting workflow group"
"""
VACUUM = """\
id: batch_split_vacuum
meta: {}
name: Batch workflow with splitting, vacuum and hash checking
lifecycle_events:
  group_end:
    - name: start span
      method: soliplex.ingester.example.run_end
      retries: 1
      parameters: {}
item_steps:
  validate:
    name: validate document
    retries: 3
    method: soliplex.ingester.lib.workflow.validate_document
    parameters: {}
  parse:
    name: docling parse
    retries: 3
    method: soliplex.ingester.lib.workflow.split_parse_document
    parameters: {}
  chunk:
    name: docling chunk
    retries: 3
    method: soliplex.ingester.lib.workflow.chunk_document
    parameters: {}
  embed:
    name: embeddings
    retries: 3
    method: soliplex.ingester.lib.workflow.embed_document
    parameters: {}
  store:
    name: save to rag
    retries: 3
    method: soliplex.ingester.lib.workflow.save_to_rag
    parameters: {}
"""
DEFAULT = """\
id: default
name: Default Parameters
meta:
  description: Standard processing parameters

config:
  parse:
    format: markdown
    ocr_enabled: true

  chunk:
    chunk_size: 512
    chunk_overlap: 50
    separator: "\\n\\n"

  embed:
    model: text-embedding-3-small
    batch_size: 1000

  store:
    data_dir: lancedb
    collection_name: documents
"""


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    yield
    sys.modules.pop("seed_handlers", None)


@pytest.fixture
def handlers():
    return HandlerCatalog(
        aliases={
            "soliplex.ingester.lib.workflow.*": "seed_handlers.*",
            "soliplex.ingester.example.run_end": "seed_handlers.run_end",
        }
    )


@pytest.fixture
def folders(tmp_path):
    made = DefinitionFolders(
        workflow_dir=tmp_path / "workflows",
        param_dir=tmp_path / "params",
        user_param_dir=tmp_path / "user",
    )
    made.workflow_dir.mkdir()
    made.param_dir.mkdir()
    (made.workflow_dir / "batch.yaml").write_text(BATCH)
    (made.param_dir / "default.yaml").write_text(DEFAULT)
    return made


@pytest.fixture
def registry(handlers, folders):
    return DefinitionRegistry(handlers, folders, default_workflow_id="batch", packages=())


async def test_the_files_of_the_seed_load_unchanged(registry, folders):
    (folders.workflow_dir / "vacuum.yaml").write_text(VACUUM)
    await registry.load()
    assert [one.id for one in await registry.list()] == ["batch", "batch_split_vacuum"]
    batch = await registry.get("batch")
    assert [step.name for step in batch.steps] == [
        "docling validate",
        "docling parse",
        "docling chunk",
        "embeddings",
        "save to rag",
    ]
    plan = await registry.plan("batch_split_vacuum", "default")
    assert [step.step_type for step in plan.steps] == TYPES
    assert plan.steps[1].handler == "seed_handlers.split_parse_document"
    assert plan.steps[2].params == {
        "chunk_size": 512,
        "chunk_overlap": 50,
        "separator": "\n\n",
    }
    [end] = plan.lifecycle[LifeCycleEvent.GROUP_END]
    assert (end.name, end.handler) == ("start span", "seed_handlers.run_end")
    assert RunPlan.from_body(plan.body) == plan


async def test_the_seeds_aliases_are_our_steps():
    catalog = HandlerCatalog()
    name = "soliplex.ingester.lib.workflow.parse_document"
    assert catalog.canonical(name) == "lexigram.ai.workers.steps.parse_document"
    end = "soliplex.ingester.example.run_end"
    assert catalog.canonical(end) == "lexigram.ai.workers.steps.run_end"


async def test_a_store_step_locks_the_absolute_path_of_its_database(registry):
    plan = await registry.plan("batch", "default")
    assert plan.steps[-1].resource_key == f"rag:{HOME}/lancedb/lancedb"
    elsewhere = await registry.plan("batch", "default", {"store": {"data_dir": "/data/db"}})
    assert elsewhere.steps[-1].resource_key == "rag:/data/db"
    plain = DefinitionRegistry(registry.handlers, packages=())
    plain.register(await registry.get("batch"))
    by_default = await plain.plan("batch")
    assert by_default.steps[-1].resource_key == f"rag:{HOME}/lancedb/default_db"


async def test_a_store_step_shares_the_key_it_has_by_itself_and_others_say_so(handlers, registry):
    plan = await registry.plan("batch", "default")
    assert [step.resource_shared for step in plan.steps] == [False] * (len(plan.steps) - 1) + [True]
    whole = await registry.get("batch")

    async def is_shared(**said):
        steps = [*whole.steps[:-1], evolve(whole.steps[-1], **said)]
        changed = evolve(whole, steps=steps)
        made = await anyio.to_thread.run_sync(make_plan, changed, None, None, handlers)
        return made.steps[-1].resource_shared

    assert await is_shared(resource_key="K") is False
    assert await is_shared(resource_key="K", resource_shared=True) is True
    assert await is_shared(resource_shared=False) is False
    with pytest.raises(DefinitionInvalidError, match="nothing is shared without a resource_key"):
        await is_shared(step_type="save", resource_shared=True)


async def test_open_names_and_several_steps_of_one_type(registry, folders):
    (folders.workflow_dir / "own.yaml").write_text("""\
id: own
name: Own
item_steps:
  rough:
    type: parse
    method: seed_handlers.parse_document
    parameters: {format: text}
  fine:
    type: parse
    method: seed_handlers.parse_document
    timeout: 2.5
    backoff: 1
    backoff_cap: 10
    pool: slow
    when: not rough_enough
    resource_key: "fine:{format}"
""")
    await registry.load()
    plan = await registry.plan("own", "default", {"fine": {"format": "html"}})
    rough, fine = plan.steps
    assert (rough.name, rough.step_type, rough.resource_key) == ("rough", "parse", None)
    # the set by type lies over the step's own, an override by key over both
    assert rough.params == {"format": "markdown", "ocr_enabled": True}
    assert (fine.timeout, fine.backoff, fine.backoff_cap) == (2.5, 1.0, 10.0)
    assert (fine.pool, fine.when, fine.resource_key) == ("slow", "not rough_enough", "fine:html")


async def test_every_problem_of_a_file_is_told_with_its_place(registry, folders):
    path = folders.workflow_dir / "wrong.yaml"
    path.write_text("""\
id: wrong
name: 7
metta: {}
item_steps:
  parse:
    method: seed_handlers.parse_dokument
    retrys: 3
    timeout: soon
  gone:
    method: no_such_module.chunk
    retries: 0
  chunk:
    method: seed_handlers.embed_document
  chunk:
    method: seed_handlers.chunk_document
    when: a and b
    parameters:
      chunk_size: .inf
  embed: {}
lifecycle_events:
  group_ends:
    - name: x
      method: seed_handlers.NOT_CALLABLE
""")
    with pytest.raises(DefinitionInvalidError) as caught:
        await registry.load()
    told = {
        (problem.source.removeprefix(f"{path}:"), problem.key): (
            problem.message,
            problem.suggestion,
        )
        for problem in caught.value.problems
    }
    assert told == {
        ("2:1", "name"): ("expected str (put it in quotes)", None),
        ("3:1", "metta"): ("unknown key", "meta"),
        ("6:5", "item_steps.parse.method"): (
            "seed_handlers has no function 'parse_dokument'",
            "seed_handlers.parse_document",
        ),
        ("7:5", "item_steps.parse.retrys"): ("unknown key", "retries"),
        ("8:5", "item_steps.parse.timeout"): ("expected float", None),
        ("10:5", "item_steps.gone.method"): (
            "there is no module 'no_such_module': install it, or correct the path 'no_such_module.chunk'",
            None,
        ),
        ("11:5", "item_steps.gone.retries"): ("must be >= 1", None),
        ("14:3", "item_steps.chunk"): ("written twice: first in line 12", None),
        ("16:5", "item_steps.chunk.when"): (
            "expected `name` or `not name` of a parameter or an earlier result",
            None,
        ),
        ("18:7", "item_steps.chunk.parameters.chunk_size"): ("expected int", None),
        ("19:3", "item_steps.embed.method"): ("required: str", None),
        ("21:3", "lifecycle_events.group_ends"): (
            f"expected one of {', '.join(LifeCycleEvent)}",
            "group_end",
        ),
        ("23:7", "lifecycle_events.group_ends[0].method"): (
            "'seed_handlers.NOT_CALLABLE' is no function but int",
            None,
        ),
    }
    assert f"{path}:6:5  item_steps.parse.method" in str(caught.value)
    assert "did you mean: retries" in str(caught.value)


async def test_parameters_are_checked_against_what_the_handler_takes(registry):
    with pytest.raises(DefinitionInvalidError) as caught:
        await registry.upload_params("""\
id: mine
config:
  parse: {ocr_enabled: maybe}
  chunk: {chunk_sise: 3, chunk_overlap: 1.5}
  embed: {batch_size: many, dim: 3}
  prase: {}
""")
    told = {(one.source, one.key, one.message, one.suggestion) for one in caught.value.problems}
    assert told == {
        ("upload:3:11", "config.parse.ocr_enabled", "expected true or false", None),
        ("upload:4:11", "config.chunk.chunk_sise", "unknown key", "chunk_size"),
        ("upload:4:26", "config.chunk.chunk_overlap", "expected int", None),
        ("upload:5:11", "config.embed.batch_size", "expected int", None),
        ("upload:5:29", "config.embed.dim", "unknown key; known here: batch_size, model", None),
        (
            "upload",
            "config.prase",
            "no workflow has a step with this key or type",
            "parse",
        ),
    }


async def test_parameters_of_lifecycle_handlers_are_checked(registry, folders):
    (folders.workflow_dir / "events.yaml").write_text("""\
id: events
name: Events
item_steps:
  one: {method: seed_handlers.run_end}
lifecycle_events:
  item_end:
    - {name: a, method: seed_handlers.log_event}
    - {name: b, method: seed_handlers.log_event, parameters: {message: 3, to: me}}
""")
    with pytest.raises(DefinitionInvalidError) as caught:
        await registry.load()
    told = {
        (one.key.removeprefix("lifecycle_events."), one.message) for one in caught.value.problems
    }
    assert told == {
        ("item_end[0].parameters.message", "required: str"),
        ("item_end[1].parameters.message", "expected str (put it in quotes)"),
        ("item_end[1].parameters.to", "unknown key; known here: message"),
    }


async def test_wrong_overrides_are_refused_with_their_name(registry):
    with pytest.raises(DefinitionInvalidError) as caught:
        await registry.plan("batch", "default", {"chunk": {"chunk_size": -1}, "stor": {}})
    assert [(one.source, one.key, one.suggestion) for one in caught.value.problems] == [
        ("overrides", "stor", "store"),
        ("overrides", "chunk.chunk_size", None),
    ]


async def test_a_required_parameter_that_nobody_gives_is_refused_by_the_plan(handlers):
    registry = DefinitionRegistry(handlers, packages=())
    step = StepDefinition(
        key="log", name="log", step_type="log", method="seed_handlers.log_event", place="code"
    )
    registry.register(WorkflowDefinition(id="w", name="W", steps=[step]))
    with pytest.raises(DefinitionInvalidError, match="required: str"):
        await registry.plan("w")
    registry.register(ParameterSet(id="p", config={"log": {"message": "hello"}}))
    assert (await registry.plan("w", "p")).steps[0].params == {"message": "hello"}


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("a:{data_dirr}", "did you mean {data_dir}"),
        ("a:{data_dir.__class__}", "plain names"),
        ("a:{", "is no template"),
    ],
)
async def test_a_template_that_cannot_be_filled_in_is_refused(handlers, template, told):
    registry = DefinitionRegistry(handlers, packages=())
    step = StepDefinition(
        key="store",
        name="store",
        step_type="store",
        method="seed_handlers.save_to_rag",
        resource_key=template,
    )
    registry.register(WorkflowDefinition(id="w", name="W", steps=[step]))
    with pytest.raises(DefinitionInvalidError, match=told):
        await registry.plan("w")


BED = """\
id: nap
name: Nap
item_steps:
  nap:
    method: seed_handlers.log_event
    resource_key: "bed:{bed}"
    parameters: {message: hush, bed: one}
"""


async def test_a_parameter_may_be_for_the_resource_key_alone(registry, folders):
    (folders.workflow_dir / "nap.yaml").write_text(BED)
    assert (await registry.plan("nap")).steps[0].resource_key == "bed:one"
    (folders.param_dir / "other.yaml").write_text("id: other\nconfig: {nap: {bed: two}}\n")
    assert (await registry.plan("nap", "other")).steps[0].resource_key == "bed:two"


async def test_a_template_that_is_none_is_told_where_it_is_written(registry):
    with pytest.raises(DefinitionInvalidError, match="x.yaml:6:5 .*resource_key") as caught:
        await registry.validate(BED.replace("{bed}", "{"), "x.yaml")
    assert "is no template" in str(caught.value)


async def test_a_file_is_not_blamed_for_what_is_wrong_with_another(registry, folders):
    (folders.workflow_dir / "wrong.yaml").write_text("id: wrong\n")
    await registry.validate(BED, "nap.yaml")
    with pytest.raises(DefinitionInvalidError) as caught:
        await registry.validate(
            BED.replace("retries", "retrys").replace("method", "mehtod"), "b.yaml"
        )
    assert {problem.source.split(":")[0] for problem in caught.value.problems} == {"b.yaml"}


async def test_a_wrong_value_is_told_by_the_workflow_that_has_the_parameter(registry, folders):
    other = BATCH.replace("id: batch", "id: another").replace(
        "method: soliplex.ingester.lib.workflow.chunk_document", "method: seed_handlers.log_event"
    )
    (folders.workflow_dir / "another.yaml").write_text(other)
    with pytest.raises(DefinitionInvalidError, match="chunk_size.*\n.*expected int"):
        await registry.validate("id: p\nconfig: {chunk: {chunk_size: many}}\n", "p.yaml")


async def test_unknown_ids_are_told_with_near_ones(registry):
    with pytest.raises(DefinitionNotFoundError, match="did you mean 'batch'"):
        await registry.get("btch")
    with pytest.raises(LookupError, match="did you mean 'default'"):
        await registry.plan("batch", "defualt")


async def test_one_id_in_two_files_is_refused(registry, folders):
    (folders.workflow_dir / "again.yaml").write_text(BATCH)
    with pytest.raises(DefinitionInvalidError, match="duplicate workflow id"):
        await registry.load()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id: [",
        "- a\n- b",
        "a: !!python/object/apply:os.system [ls]",
        "a: &a [*a]",
        "x" * 1_000_001,
        "\x00",
    ],
)
async def test_what_is_no_definition_is_refused_with_a_place(registry, text):
    with pytest.raises(DefinitionInvalidError) as caught:
        await registry.upload_workflow(text)
    assert all(problem.source.startswith("upload") for problem in caught.value.problems)


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 5_000, "a: " + "{a: " * 5_000, "a:\n " + "- " * 5_000]
)
async def test_a_definition_is_read_no_further_than_thirty_levels(registry, text):
    with pytest.raises(DefinitionInvalidError, match="nested deeper than 30 levels"):
        await registry.upload_workflow(text)


async def test_a_definition_is_read_no_further_than_its_values_may_be_many(registry):
    with pytest.raises(DefinitionInvalidError, match="more than 40000 keys and values"):
        await registry.upload_params("a: [" + "1, " * 100_000 + "]")


async def test_aliases_that_multiply_are_bounded(registry):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(DefinitionInvalidError, match="more than 20000 values"):
        await registry.upload_params("\n".join(lines))


async def test_variables_of_the_environment_are_not_read_into_definitions(registry):
    text = 'id: env\nname: "${HOME}"\nconfig: {}\n'
    assert (await registry.upload_params(text)).name == "${HOME}"


@given(text=st.text(max_size=200))
def test_any_text_is_refused_or_read_and_never_breaks(text):
    document = Document(text=text, name="upload", source="user")
    for found, problems in (read_workflow(document, HandlerCatalog()), read_params(document)):
        assert (found is None) == bool(problems)


@given(at=st.integers(0, len(BATCH) - 1), put=st.sampled_from(list(": -\n[]{}&*!'\"#|>%@`\t\x00?")))
def test_one_wrong_character_is_refused_or_read_and_never_breaks(at, put):
    text = BATCH[:at] + put + BATCH[at + 1 :]
    found, problems = read_workflow(
        Document(text=text, name="upload", source="user"), HandlerCatalog()
    )
    assert found is None
    assert problems
    for problem in problems:
        assert str(problem).startswith("upload")


# --- who may be called --------------------------------------------------------------------------

UPLOAD = """\
id: mine
name: Mine
item_steps:
  one:
    method: {}
"""


async def test_an_upload_may_only_name_allowed_handlers(folders):
    handlers = HandlerCatalog({"greet": seed_function()}, prefixes=["seed_handlers"])
    (folders.workflow_dir / "batch.yaml").unlink()
    registry = DefinitionRegistry(handlers, folders, packages=())
    await registry.upload_workflow(UPLOAD.format("seed_handlers.run_end"))
    await registry.upload_workflow(UPLOAD.format("greet").replace("mine", "greeting"))
    for name in ("os.system", "seed_handlers_evil.run", "seed_handlers.os.system"):
        with pytest.raises(DefinitionInvalidError) as caught:
            await registry.upload_workflow(UPLOAD.format(name).replace("mine", "other"))
        assert len(caught.value.problems) == 1
    with pytest.raises(DefinitionInvalidError, match=r"workflow\.durable\.handler_prefixes"):
        await registry.upload_workflow(UPLOAD.format("os.system").replace("mine", "other"))


async def test_an_import_of_an_allowed_module_is_not_allowed_by_it(folders, handlers):
    # seed_handlers imports step_params from lexigram
    handlers = HandlerCatalog(prefixes=["seed_handlers"])
    (folders.workflow_dir / "batch.yaml").unlink()
    registry = DefinitionRegistry(handlers, folders, packages=())
    with pytest.raises(DefinitionInvalidError, match="is not allowed"):
        await registry.upload_workflow(UPLOAD.format("seed_handlers.step_params"))


async def test_without_prefixes_uploads_may_name_nothing_and_folders_anything(registry):
    with pytest.raises(DefinitionInvalidError, match="allows nothing"):
        await registry.upload_workflow(UPLOAD.format("seed_handlers.run_end"))
    await registry.load()


async def test_prefixes_hold_for_the_folders_too_when_set(folders):
    registry = DefinitionRegistry(
        HandlerCatalog(
            aliases={"soliplex.ingester.lib.workflow.*": "seed_handlers.*"}, prefixes=["myapp"]
        ),
        folders,
        packages=(),
    )
    with pytest.raises(DefinitionInvalidError, match="allows myapp"):
        await registry.load()


# --- uploads and changes ------------------------------------------------------------------------


async def test_an_uploaded_set_is_used_and_deleted(registry, folders):
    made = await registry.upload_params("id: mine\nconfig:\n  chunk: {chunk_size: 9}\n")
    assert (made.source, made.origin) == ("user", str(folders.user_param_dir / "user_mine.yaml"))
    assert (await registry.plan("batch", "mine")).steps[2].params == {"chunk_size": 9}
    with pytest.raises(DefinitionExistsError):
        await registry.upload_params("id: mine\nconfig: {}\n")
    with pytest.raises(DefinitionProtectedError, match="not an upload"):
        await registry.delete_params("default")
    await registry.delete_params("mine")
    with pytest.raises(DefinitionNotFoundError):
        await registry.params("mine")


async def test_a_set_that_runs_use_is_not_deleted(handlers, folders):
    async def is_used(param_id):
        return param_id == "mine"

    registry = DefinitionRegistry(handlers, folders, packages=(), is_used=is_used)
    await registry.upload_params("id: mine\nconfig: {}\n")
    with pytest.raises(DefinitionProtectedError, match="used by a run group"):
        await registry.delete_params("mine")


async def test_an_id_cannot_lead_out_of_the_folder(registry):
    with pytest.raises(DefinitionInvalidError, match="id"):
        await registry.upload_params("id: ../../etc/x\nconfig: {}\n")


async def test_changed_files_are_read_and_broken_ones_leave_the_old(registry, folders):
    await registry.load()
    path = folders.workflow_dir / "batch.yaml"
    path.write_text(BATCH.replace("Batch Workflow", "New Name"))
    await registry.load()
    assert (await registry.get("batch")).name == "New Name"
    path.write_text(BATCH.replace("retries: 3", "retries: three", 1))
    with pytest.raises(DefinitionInvalidError):
        await registry.load()
    assert (await registry.get("batch")).name == "New Name"
    assert [problem.key for problem in registry.problems] == ["item_steps.validate.retries"]
    path.write_text(BATCH)
    await registry.load()
    assert (await registry.get("batch")).name == "Batch Workflow"
    assert not registry.problems


async def test_packages_bring_definitions_that_a_folder_replaces(
    handlers, folders, tmp_path, monkeypatch
):
    package = tmp_path / "lexpack"
    (package / "workflows").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "workflows" / "a.yaml").write_text(BATCH.replace("Batch Workflow", "Packed"))
    (package / "workflows" / "b.yaml").write_text(VACUUM)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = DefinitionRegistry(handlers, folders, packages=["lexpack"])
    assert {one.id: one.source for one in await registry.list()} == {
        "batch": "app",
        "batch_split_vacuum": "package",
    }


async def test_the_default_set_of_a_package_is_for_its_own_workflows_only(
    handlers, tmp_path, monkeypatch
):
    package = tmp_path / "lexpack2"
    for name in ("workflows", "params"):
        (package / name).mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "workflows" / "b.yaml").write_text(VACUUM)
    (package / "params" / "default.yaml").write_text(
        "id: default\nconfig:\n  chunk:\n    chunk_size: 7\n"
    )
    own = tmp_path / "own"
    own.mkdir()
    (own / "batch.yaml").write_text(BATCH)
    monkeypatch.syspath_prepend(tmp_path)
    folders = DefinitionFolders(workflow_dir=own)
    registry = DefinitionRegistry(handlers, folders, packages=["lexpack2"])

    def sizes(plan):
        return [step.params.get("chunk_size") for step in plan.steps if step.step_type == "chunk"]

    assert sizes(await registry.plan("batch_split_vacuum")) == [7]
    assert sizes(await registry.plan("batch")) != [7]
    assert sizes(await registry.plan("batch", "default")) == [7]


async def test_a_package_that_is_not_there_is_told(handlers):
    registry = DefinitionRegistry(handlers, packages=["no_such_package.definitions"])
    with pytest.raises(DefinitionInvalidError, match="no_such_package.definitions"):
        await registry.load()


async def test_a_definition_of_a_package_is_not_held_to_the_prefixes(tmp_path, monkeypatch):
    package = tmp_path / "lexpack2"
    (package / "workflows").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "workflows" / "a.yaml").write_text(UPLOAD.format("seed_handlers.run_end"))
    monkeypatch.syspath_prepend(str(tmp_path))
    handlers = HandlerCatalog(prefixes=["myapp"])
    registry = DefinitionRegistry(handlers, packages=["lexpack2"])
    assert (await registry.get("mine")).source == "package"


def seed_function():
    async def greet(doc) -> dict:
        return {}

    return greet
