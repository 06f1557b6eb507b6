"""Documents, URIs, batches, their artifacts and their runs, on both databases."""

import contextlib
import functools

import anyio
import pytest
from tests.conformance.durable.documents_kit import TABLES, Fleet, document

from lexigram.blobs.config import BlobConfig
from lexigram.blobs.store import BlobStore
from lexigram.contracts.data.blobs import BlobError
from lexigram.contracts.workflow import InvalidRunError
from lexigram.contracts.workflow.durable import (
    ArtifactType,
    DurableRunsProtocol,
    RunDocument,
    RunStatus,
)
from lexigram.sql.errors import SerializationConflictError
from lexigram.workflow.durable.definitions.registry import DefinitionFolders
from lexigram.workflow.durable.documents.documents import Documents
from lexigram.workflow.durable.errors import (
    BatchCompletedError,
    DefinitionInvalidError,
    DefinitionNotFoundError,
    DocumentInUseError,
    DocumentNotFoundError,
    DocumentSourceError,
    DurableError,
    PlanInvalidError,
    RunNotFoundError,
)
from lexigram.workflow.durable.following import Following
from lexigram.workflow.durable.plan import NewRun, RunPlan, StepPlan

pytestmark = pytest.mark.anyio

MANY = 500


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def database(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def blobs(tmp_path):
    return await BlobStore.open(BlobConfig(root=str(tmp_path / "blobs")))


@pytest.fixture
async def fleet(database, blobs):
    for table in TABLES:
        await database.execute(f"DELETE FROM {table}")
    return Fleet(database, blobs)


async def paths(blobs):
    return sorted([info.path async for info in blobs.list()])


async def rows(database, table):
    return (await database.execute_query(f"SELECT count(*) AS n FROM {table}")).rows[0]["n"]


# --- documents ----------------------------------------------------------------------------------


async def test_a_document_is_named_by_its_content_and_kept_once(fleet, blobs):
    batch = await fleet.documents.create_batch("folder", "first")
    one = await fleet.documents.ingest(document("a.txt"), batch)
    two = await fleet.documents.ingest(document("b.txt"), batch)
    assert one.document_hash == two.document_hash
    assert one.document_hash == (
        "sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"
    )
    assert await paths(blobs) == [f"raw/{one.document_hash}"]
    found = await fleet.documents.document(one.document_hash)
    assert (found.mime_type, found.file_size, found.uri) == ("text/plain", 5, "b.txt")


async def test_a_uri_has_versions_with_a_history(fleet):
    first = await fleet.documents.create_batch("folder")
    second = await fleet.documents.create_batch("folder")
    acted = [
        await fleet.documents.ingest(document(content=b"1"), first),
        await fleet.documents.ingest(document(content=b"1"), first),
        await fleet.documents.ingest(document(content=b"2", metadata={"n": 2}), second),
    ]
    assert [(one.action, one.version) for one in acted] == [
        ("create", 1),
        ("unchanged", 1),
        ("update", 2),
    ]
    now = await fleet.documents.uri("a.txt", "folder")
    assert (now.doc_hash, now.version, now.metadata) == (acted[2].document_hash, 2, {"n": 2})
    history = await fleet.documents.history("a.txt", "folder")
    assert [(one.version, one.action, one.batch_id) for one in history] == [
        (1, "create", first),
        (2, "update", second),
    ]


async def test_a_source_is_compared_with_what_is_stored(fleet):
    batch = await fleet.documents.create_batch("git")
    made = [
        await fleet.documents.ingest(document(uri, uri.encode(), "git"), batch)
        for uri in ("same", "changed", "gone")
    ]
    await fleet.documents.ingest(document("else", source="other"), batch)
    hashes = {
        "same": made[0].document_hash.removeprefix("sha256-"),
        "changed": "sha256:00",
        "new": "sha256-11",
    }
    found = await fleet.documents.source_status("git", hashes)
    assert {uri: one.status.value for uri, one in found.items()} == {
        "same": "unchanged",
        "changed": "changed",
        "new": "new",
        "gone": "deleted",
    }
    await fleet.documents.source_status("git", hashes, delete_stale=True)
    assert [one.uri for one in await fleet.documents.list(source="git")] == ["same", "changed"]


async def test_deleting_a_uri_takes_the_document_with_the_last_one(fleet, database, blobs):
    group = await fleet.runs.submit([document("a.txt"), document("b.txt")])
    await fleet.worked(group)
    assert len(await paths(blobs)) == 4
    first = await fleet.documents.delete_uri("a.txt", "folder")
    assert (first["deleted_documents"], first["deleted_runs"]) == (0, 0)
    assert len(await paths(blobs)) == 4
    last = await fleet.documents.delete_uri("b.txt", "folder")
    assert (last["deleted_documents"], last["deleted_runs"]) == (1, 2)
    assert last["deleted_artifacts"] == 4
    assert await paths(blobs) == []
    for table in (*TABLES[:-1], "lexigram_durable_runs", "lexigram_durable_history"):
        assert await rows(database, table) == 0
    assert (await fleet.runs.status(group)).total_runs == 0
    with pytest.raises(DocumentNotFoundError):
        await fleet.documents.delete_uri("b.txt", "folder")


async def test_a_document_that_its_source_has_no_more_is_forgotten(fleet, blobs):
    await fleet.worked(await fleet.runs.submit([document("a.txt")]))
    assert await fleet.runs.forget("a.txt", "folder") is True
    assert await paths(blobs) == []
    assert await fleet.runs.forget("a.txt", "folder") is False


async def test_a_plan_has_the_same_key_while_it_gives_the_same_work(fleet):
    key = await fleet.runs.plan_key()
    assert await fleet.runs.plan_key() == key
    with pytest.raises(LookupError):
        await fleet.runs.plan_key(workflow_id="unknown")


async def test_following_ends_when_the_worker_of_this_process_died(fleet):
    group = await fleet.runs.submit([document("a.txt")])

    class Dead:
        failure = OSError("the disk is gone")

        async def start(self):
            pass

        async def stop(self, timeout):
            pass

    following = Following(fleet.engine, make_worker=lambda consumers: Dead())
    with pytest.raises(DurableError, match="failed") as caught:
        async with following.working():
            async for _ in following.watch(group):
                pass
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_document_that_runs_need_is_not_deleted(fleet):
    group = await fleet.runs.submit([document()])
    with pytest.raises(DocumentInUseError, match="not final"):
        await fleet.documents.delete_uri("a.txt", "folder")
    await fleet.runs.cancel(group)
    assert (await fleet.documents.delete_uri("a.txt", "folder"))["deleted_runs"] == 1


async def test_a_document_that_no_uri_has_is_cleaned_up(fleet, blobs):
    batch = await fleet.documents.create_batch("folder")
    old = await fleet.documents.ingest(document(content=b"old"), batch)
    new = await fleet.documents.ingest(document(content=b"new"), batch)
    assert await fleet.documents.cleanup_orphans(older_than=3600) == {
        "deleted_documents": 0,
        "deleted_artifacts": 0,
    }
    assert (await fleet.documents.cleanup_orphans(older_than=0))["deleted_documents"] == 1
    with pytest.raises(DocumentNotFoundError):
        await fleet.documents.document(old.document_hash)
    assert await paths(blobs) == [f"raw/{new.document_hash}"]


async def test_blobs_that_a_crash_left_are_swept_and_others_stay(fleet, blobs):
    batch = await fleet.documents.create_batch("folder")
    kept = await fleet.documents.ingest(document(), batch)
    # the process died between the blobs and the rows
    await fleet.documents.prepare([document("b.txt", b"lost")])
    await blobs.upload("markdown/key/sha256-lost", b"x")
    await blobs.upload("elsewhere/sha256-lost", b"x")
    assert await fleet.documents.sweep() == 0
    assert await fleet.documents.sweep(older_than=-1) == 2
    assert await paths(blobs) == ["elsewhere/sha256-lost", f"raw/{kept.document_hash}"]


async def test_a_worker_keeps_which_batches_are_completed_once_a_day(fleet, database):
    await fleet.worked(await fleet.runs.submit([document()]))
    await database.execute("DELETE FROM lexigram_durable_duties")
    kept = "SELECT id FROM lexigram_durable_batches WHERE completed_at IS NOT NULL"
    async with fleet.runs.working():
        while not (await database.execute_query(kept)).rows:  # noqa: ASYNC110 - rows tell nobody
            await anyio.sleep(0.01)


async def test_no_row_is_stored_when_its_blob_cannot_be_written(fleet, database, monkeypatch):
    async def full(*_):
        raise BlobError("the disk is full")

    monkeypatch.setattr(fleet.artifacts.blobs, "upload", full)
    with pytest.raises(BlobError, match="disk is full"):
        await fleet.runs.submit([document()])
    for table in (*TABLES, "lexigram_durable_runs", "lexigram_durable_groups"):
        assert await rows(database, table) == 0


async def test_a_content_deleted_while_it_is_submitted_again_gets_its_blob_back(fleet, blobs):
    batch = await fleet.documents.create_batch("folder")
    await fleet.documents.ingest(document(), batch)
    prepared = await fleet.documents.prepare([document("b.txt")])
    assert prepared.uploaded == frozenset()
    await fleet.documents.delete_uri("a.txt", "folder")
    assert await paths(blobs) == []
    [added] = await fleet.documents.add(prepared, batch)
    assert await fleet.artifacts.document(added.hash).read() == b"alpha"


async def test_documents_are_read_from_files_and_blobs(fleet, blobs, tmp_path, database):
    path = tmp_path / "some file.txt"
    await anyio.Path(path).write_bytes(b"from a file")
    await blobs.upload("inbox/x.md", b"from a blob")
    uris = [str(path), path.as_uri(), "blob:inbox/x.md"]
    batch = await fleet.documents.create_batch("folder")
    made = await fleet.documents.ingest_many(
        [RunDocument(uri=uri, source="folder") for uri in uris], batch
    )
    assert len({one.document_hash for one in made}) == 2
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for uri in (
        str(tmp_path / "none"),
        str(tmp_path / "loop"),
        "s3://bucket/key",
        "blob:inbox/none",
    ):
        with pytest.raises(DocumentSourceError, match="cannot be read"):
            await fleet.documents.ingest(RunDocument(uri=uri, source="folder"), batch)
    limited = Documents(database, fleet.artifacts, fleet.engine, input_dirs=[tmp_path / "inputs"])
    with pytest.raises(DocumentSourceError, match="outside the folders"):
        await limited.ingest(RunDocument(uri=str(path), source="folder"), batch)
    with pytest.raises(DocumentSourceError, match="no reader for blob"):
        await limited.ingest(RunDocument(uri="blob:inbox/x.md", source="folder"), batch)


async def test_what_cannot_be_stored_is_told(fleet):
    for wrong in (
        document(uri=""),
        document(source=""),
        document(uri="a\0b"),
        document(metadata={"x": object()}),
    ):
        with pytest.raises(InvalidRunError):
            await fleet.runs.submit([wrong])
    with pytest.raises(PlanInvalidError, match="different contents"):
        await fleet.runs.submit([document(content=b"1"), document(content=b"2")])
    with pytest.raises(PlanInvalidError, match="nothing to submit"):
        await fleet.runs.submit([])
    long = "long/" + "ä" * 5000
    assert await fleet.runs.submit([document(long)])
    assert (await fleet.documents.uri(long, "folder")).uri == long


async def test_two_submit_the_same_documents_at_once(fleet, database):
    many = [document(f"{n}", str(n).encode()) for n in range(40)]
    async with anyio.create_task_group() as tasks:
        for order in (many, many[::-1], many):
            tasks.start_soon(fleet.runs.submit, order)
    assert await rows(database, "lexigram_durable_documents") == 40
    assert await rows(database, "lexigram_durable_document_uris") == 40
    assert await rows(database, "lexigram_durable_uri_history") == 40
    assert await rows(database, "lexigram_durable_runs") == 120


async def test_contents_that_come_and_go_at_once_always_have_their_bytes(fleet, database):
    async def come_and_go(uri):
        for _ in range(8):
            many = [document(uri), document(f"{uri}/2", b"beta")]
            await fleet.runs.cancel(await fleet.runs.submit(many))
            for one in many:
                with contextlib.suppress(DocumentInUseError):
                    await fleet.documents.delete_uri(one.uri, one.source)

    async with anyio.create_task_group() as tasks:
        for uri in ("x", "y", "z"):
            tasks.start_soon(come_and_go, uri)
    found = await database.execute_query("SELECT hash FROM lexigram_durable_documents")
    for row in found.rows:
        assert await fleet.artifacts.document(row["hash"]).exists()


# --- batches ------------------------------------------------------------------------------------


async def test_a_batch_is_completed_when_all_its_runs_are_final(fleet):
    batch = await fleet.documents.create_batch("folder")
    await fleet.documents.ingest(document(), batch)
    started = await fleet.runs.start_batch(batch)
    assert (await fleet.documents.batch(batch)).completed_at is None
    await fleet.worked(started.group_id)
    done = await fleet.documents.batch(batch)
    assert done.completed_at is not None
    assert done.duration > 0
    with pytest.raises(BatchCompletedError):
        await fleet.documents.ingest(document("b.txt"), batch)
    # kept also when retention has removed the groups
    await fleet.documents.group_ended(started.group_id)
    await fleet.engine.prune(0)
    with pytest.raises(RunNotFoundError):
        await fleet.runs.status(started.group_id)
    assert (await fleet.documents.batch(batch)).completed_at == done.completed_at


async def test_completed_batches_are_kept_by_the_sweep(fleet):
    group = await fleet.runs.submit([document()])
    await fleet.worked(group)
    await fleet.documents.sweep()
    await fleet.engine.prune(0)
    [batch], _ = await fleet.documents.batches()
    assert batch.completed_at is not None


async def test_a_retry_opens_the_batch_again(fleet):
    group = await fleet.runs.submit([document()], workflow_id="failing")
    await fleet.worked(group)
    [batch], total = await fleet.documents.batches()
    assert total == 1
    assert batch.completed_at is not None
    await fleet.runs.retry(group)
    assert (await fleet.documents.batch(batch.id)).completed_at is None


async def test_an_identical_file_in_a_second_batch_is_in_its_run_set(fleet):
    first = await fleet.documents.create_batch("folder")
    second = await fleet.documents.create_batch("folder")
    await fleet.documents.ingest(document(), first)
    again = await fleet.documents.ingest(document(), second)
    assert again.action == "unchanged"
    assert (await fleet.runs.start_batch(first)).runs == 1
    assert (await fleet.runs.start_batch(second)).runs == 1
    assert (await fleet.documents.batch(second)).document_count == 1


async def test_a_batch_is_not_run_twice_unless_asked(fleet):
    batch = await fleet.documents.create_batch("folder")
    await fleet.documents.ingest_many([document("a"), document("b", b"beta")], batch)
    first = await fleet.runs.start_batch(batch)
    second = await fleet.runs.start_batch(batch)
    assert (first.runs, second.runs, second.skipped) == (2, 0, 2)
    assert second.group_id == first.group_id
    await fleet.documents.ingest(document("c", b"gamma"), batch)
    third = await fleet.runs.start_batch(batch)
    assert (third.runs, third.skipped) == (1, 2)
    assert (await fleet.runs.start_batch(batch, param_id="size1")).runs == 3
    assert (await fleet.runs.start_batch(batch, again=True)).runs == 3


async def test_parsed_and_completed_documents_can_be_left_out(fleet):
    first = await fleet.documents.create_batch("folder")
    await fleet.documents.ingest(document(), first)
    await fleet.worked((await fleet.runs.start_batch(first)).group_id)
    second = await fleet.documents.create_batch("folder")
    await fleet.documents.ingest_many([document(), document("b", b"beta")], second)
    unparsed = await fleet.runs.start_batch(second, only_unparsed=True)
    assert (unparsed.runs, unparsed.skipped) == (1, 1)
    unfinished = await fleet.runs.start_batch(second, skip_existing=True, again=True)
    assert (unfinished.runs, unfinished.skipped) == (1, 1)
    assert (await fleet.runs.start_batch(second, skip_existing=True, param_id="size1")).runs == 2


async def test_a_single_document_is_started_in_its_last_batch(fleet):
    group = await fleet.runs.submit([document()])
    await fleet.worked(group)
    [found] = await fleet.documents.list(source="folder")
    started = await fleet.runs.start_document(found.doc_hash, param_id="size2")
    assert started.runs == 1
    assert (await fleet.runs.start_document(found.doc_hash, param_id="size2")).runs == 0
    assert (await fleet.worked(started.group_id)).completed == 1
    with pytest.raises(DocumentNotFoundError):
        await fleet.runs.start_document("sha256-none")


async def test_unknown_batches_are_told(fleet):
    with pytest.raises(DocumentNotFoundError, match="no batch 99"):
        await fleet.documents.batch(99)
    with pytest.raises(DocumentNotFoundError):
        await fleet.runs.start_batch(99)
    with pytest.raises(DocumentNotFoundError):
        await fleet.documents.ingest(document(), 99)


# --- artifacts ----------------------------------------------------------------------------------


async def test_runs_with_the_same_parameters_share_what_was_made(fleet, blobs):
    await fleet.worked(await fleet.runs.submit([document()], param_id="size1"))
    await fleet.worked(await fleet.runs.submit([document()], param_id="size2"))
    # the parsed form does not depend on the size of chunks
    assert fleet.calls == {"parse": 1, "chunk 1": 1, "chunk 2": 1}
    folders = [path.partition("/")[0] for path in await paths(blobs)]
    assert folders == ["chunks", "chunks", "json", "markdown", "raw"]


async def test_deleted_artifacts_are_made_again_and_the_document_stays(fleet):
    await fleet.worked(await fleet.runs.submit([document()]))
    [found] = await fleet.documents.list(source="folder")
    stored = await fleet.documents.stored(found.doc_hash)
    assert stored[0].path == f"raw/{found.doc_hash}"
    assert len(stored) == 4
    assert await fleet.documents.delete_artifacts(found.doc_hash) == 3
    assert [info.path for info in await fleet.documents.stored(found.doc_hash)] == [stored[0].path]
    await fleet.worked(await fleet.runs.submit([document()]))
    assert fleet.calls["parse"] == 2


async def test_a_forced_run_makes_everything_again(fleet):
    await fleet.worked(await fleet.runs.submit([document()]))
    group = await fleet.runs.submit([document()])
    await fleet.worked(group)
    assert fleet.calls["parse"] == 1
    await fleet.worked(await fleet.runs.submit([document()], force=True))
    assert fleet.calls["parse"] == 2


async def test_custom_artifacts_are_told_apart_by_name_and_found_by_their_step(fleet, blobs):
    plan = await fleet.registry.plan("batch")
    submitted = await fleet.engine.submit(plan, [_run("sha256-x")])
    run = await fleet.engine.run(submitted.runs[0])
    first, second = await fleet.engine.steps(run.id)
    parse = fleet.artifacts.of(first, run, plan)
    chunk = fleet.artifacts.of(second, run, plan)
    await parse.artifact(ArtifactType.CUSTOM, "a/b?").write(b"1")
    await parse.artifact(ArtifactType.CUSTOM).write(b"2")
    assert await chunk.artifact(ArtifactType.CUSTOM, "parse it/a/b?").read() == b"1"
    assert await chunk.artifact(ArtifactType.CUSTOM, "parse it/").read() == b"2"
    assert not await chunk.artifact(ArtifactType.CUSTOM).exists()
    with pytest.raises(PlanInvalidError, match="type: embed"):
        chunk.artifact(ArtifactType.EMBEDDINGS)
    found = [info.path async for info in fleet.artifacts.list("sha256-x", [plan])]
    assert sorted(found) == await paths(blobs)


# --- definitions of the seed's kind ---------------------------------------------------------------

CUSTOM = """\
id: custom
name: Custom
item_steps:
  custom_step:
    name: My Custom Step
    retries: 2
    method: custom_handler
    parameters:
      param1: value1
"""


async def test_the_seeds_custom_step_gets_what_its_signature_asks_for(fleet, tmp_path):
    seen = []

    async def custom_handler(run_step, workflow_run, doc, step_params):
        seen.append((run_step.workflow_step_name, workflow_run.doc_id == doc.hash, step_params))
        return {"status": "success", "items_processed": 42}

    fleet.handlers.register("custom_handler", custom_handler)
    fleet.registry.folders = DefinitionFolders(user_param_dir=tmp_path / "user")
    await fleet.registry.upload_workflow(CUSTOM)
    group = await fleet.runs.submit([document()], workflow_id="custom")
    assert (await fleet.worked(group)).completed == 1
    assert seen == [("My Custom Step", True, {"param1": "value1"})]


async def test_a_changed_definition_leaves_the_runs_that_were_submitted_before(fleet, tmp_path):
    calls = []
    for name in ("old", "new"):
        fleet.handlers.register(name, functools.partial(_note, calls, name))
    folders = DefinitionFolders(workflow_dir=tmp_path / "workflows")
    await anyio.Path(folders.workflow_dir).mkdir()
    path = anyio.Path(folders.workflow_dir / "w.yaml")
    fleet.registry.folders = folders
    text = "id: w\nname: W\nitem_steps:\n  one:\n    method: {}\n"
    groups = []
    for name in ("old", "new"):
        await path.write_text(text.format(name))
        await fleet.registry.load()
        groups.append(await fleet.runs.submit([document()], workflow_id="w"))
    await path.write_text("id: [")
    with pytest.raises(DefinitionInvalidError):
        await fleet.registry.load()
    for group in groups:
        await fleet.worked(group)
    assert sorted(calls) == ["new", "old"]


async def _note(calls, name):
    calls.append(name)


# --- submission ---------------------------------------------------------------------------------


async def test_it_is_what_the_contract_asks_for(fleet):
    assert isinstance(fleet.runs, DurableRunsProtocol)


async def test_a_run_knows_its_document_and_where_it_came_from(fleet):
    group = await fleet.runs.submit(
        [document("dir/a.txt", metadata={"by": "me"})], name="mine", tenant_id="t", priority=3
    )
    assert (await fleet.worked(group)).completed == 1
    [run] = (await fleet.engine.database.execute_query("SELECT id FROM lexigram_durable_runs")).rows
    run = await fleet.engine.run(run["id"])
    assert (run.tenant, run.priority) == ("t", 3)
    assert run.run_params["uri"] == "dir/a.txt"
    first = (await fleet.engine.steps(run.id))[0]
    assert first.status_meta == {"uri": "dir/a.txt", "metadata": {"by": "me"}}


async def test_a_key_makes_one_group_of_many_calls(fleet, database):
    groups = [await fleet.runs.submit([document()], idempotency_key="k") for _ in range(2)]
    assert groups[0] == groups[1]
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(_submit_with_key, fleet, groups)
    assert len(set(groups)) == 2
    assert await rows(database, "lexigram_durable_runs") == 2
    assert await rows(database, "lexigram_durable_batches") == 2


async def test_a_submission_that_fails_for_the_moment_is_made_once(fleet, database, monkeypatch):
    submit, failures = fleet.engine.submit, [SerializationConflictError("a deadlock")]

    async def sometimes(*given, **more):
        submitted = await submit(*given, **more)
        if failures:
            raise DurableError("the store failed") from failures.pop()
        return submitted

    monkeypatch.setattr(fleet.engine, "submit", sometimes)
    group = await fleet.runs.submit([document()])
    assert (await fleet.runs.status(group)).total_runs == 1
    for table in ("batches", "groups", "runs", "documents"):
        assert await rows(database, f"lexigram_durable_{table}") == 1


async def test_nothing_is_stored_when_ids_or_parameters_are_wrong(fleet, database, blobs):
    with pytest.raises(DefinitionNotFoundError, match="did you mean 'batch'"):
        await fleet.runs.submit([document()], workflow_id="bach")
    with pytest.raises(DefinitionNotFoundError, match="did you mean"):
        await fleet.runs.submit([document()], param_id="size3")
    with pytest.raises(DefinitionInvalidError, match="expected int"):
        await fleet.runs.submit([document()], overrides={"chunk": {"size": "big"}})
    assert await paths(blobs) == []
    for table in (*TABLES, "lexigram_durable_groups"):
        assert await rows(database, table) == 0


async def test_failures_tell_document_step_and_reason(fleet):
    group = await fleet.runs.submit([document("x.txt")], workflow_id="failing")
    stats = await fleet.worked(group)
    assert (stats.failed, stats.group_status) == (1, RunStatus.FAILED)
    [failure] = await fleet.runs.failures(group)
    assert (failure.uri, failure.step, failure.error_type) == ("x.txt", "fail it", "RuntimeError")
    assert failure.message == "no room for x.txt"


async def test_watching_begins_now_and_ends_with_the_final_figures(fleet):
    group = await fleet.runs.submit([document("a"), document("b", b"beta")])
    async with fleet.runs.working({"parse": 1, "*": 1}):
        seen = [stats async for stats in fleet.runs.watch(group)]
    assert seen[-1].group_status is RunStatus.COMPLETED
    assert seen[-1].completed == 2
    assert len(seen) == len(set(seen))
    with pytest.raises(LookupError):
        async for _ in fleet.runs.watch(99):
            pass


async def test_a_run_whose_document_is_gone_fails_at_once(fleet, database):
    group = await fleet.runs.submit([document()], workflow_id="failing")
    for table in TABLES[:-1]:
        await database.execute(f"DELETE FROM {table}")
    await fleet.worked(group)
    [failure] = await fleet.runs.failures(group)
    assert failure.error_type == "StepRefusedError"


async def test_many_documents_are_submitted_at_once(fleet, database):
    many = [document(f"doc/{n}", b"content %d" % n) for n in range(MANY)]
    group = await fleet.runs.submit(many)
    assert (await fleet.runs.status(group)).total_runs == MANY
    assert await rows(database, "lexigram_durable_documents") == MANY


async def _submit_with_key(fleet, groups):
    groups.append(await fleet.runs.submit([document()], idempotency_key="other"))


def _run(doc_id):
    from lexigram.workflow.durable.plan import NewRun

    return NewRun(doc_id=doc_id)


async def test_runs_of_documents_can_begin_later_and_for_a_tenant(fleet, database):
    group = await fleet.runs.submit([document()], delay=3600, tenant_id="t", priority=2)
    [run] = (await database.execute_query("SELECT * FROM lexigram_durable_runs")).rows
    assert (run["status"], run["tenant"], run["priority"]) == ("delayed", "t", 2)
    assert await fleet.engine.claim_next_step("w", "lease") is None
    await database.execute("UPDATE lexigram_durable_runs SET available_at = 1")
    assert (await fleet.worked(group)).group_status is RunStatus.COMPLETED
    for delay in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidRunError, match="delay .* is not a number from 0"):
            await fleet.runs.submit([document("b.txt")], delay=delay)


async def test_a_second_start_of_a_batch_with_the_key_finds_the_first(fleet):
    batch = await fleet.documents.create_batch("folder")
    await fleet.documents.ingest(document(), batch)
    first = await fleet.runs.start_batch(batch, idempotency_key="k", name="mine", delay=60)
    again = await fleet.runs.start_batch(batch, idempotency_key="k", again=True)
    assert (again.group_id, again.runs, again.is_repeat) == (first.group_id, 0, True)
    other = await fleet.runs.start_batch(batch, idempotency_key="l")
    assert (other.group_id, other.runs, other.is_repeat) == (first.group_id, 0, False)
    assert (other.skipped, first.runs) == (1, 1)


# --- items of a document ------------------------------------------------------------------------


def pages_plan(size=1):
    """Runs for the pages of a document: two steps of this plan, for each page."""
    steps = [
        StepPlan(name="split", step_type="split", handler="split", params={"size": size}),
        StepPlan(name="parse", step_type="parse", handler="parse_page"),
        StepPlan(name="read", step_type="read", handler="read_page"),
        StepPlan(name="join", step_type="join", handler="join"),
    ]
    return RunPlan(workflow_id="pages", steps=steps)


async def split(ctx, step_params, workflow_run):
    pages = workflow_run.run_params["pages"]
    ctx.spawn(["parse", "read"], [NewRun(params={"page": page}) for page in pages])
    return {"next_step": "join"}


async def parse_page(ctx, page):
    await ctx.artifact(ArtifactType.PARSED_MD).write(f"page {page}".encode())
    await ctx.artifact(ArtifactType.PARSED_JSON).write(b"{}")
    await ctx.artifact(ArtifactType.CUSTOM, "note").write(f"note {page}".encode())


async def read_page(ctx):
    text = await ctx.artifact(ArtifactType.PARSED_MD).read()
    note = await ctx.artifact(ArtifactType.CUSTOM, "parse/note").read()
    return {"text": text.decode(), "note": note.decode()}


async def join(ctx):
    children = await ctx.children()
    return {
        "texts": [child.status_meta["text"] for child in children],
        "notes": [child.status_meta["note"] for child in children],
        "params": [dict(child.run_params) for child in children],
    }


async def joined(fleet, pages, size=1):
    """Do the pages of the document; what the last step gathered."""
    batch = await fleet.documents.create_batch("folder")
    made = await fleet.documents.ingest(document(), batch)
    for function in (split, parse_page, read_page, join):
        fleet.handlers.register(function.__name__, function)
    run = NewRun(doc_id=made.document_hash, batch_id=batch, params={"pages": pages})
    submitted = await fleet.engine.submit(pages_plan(size), [run])
    stats = await fleet.worked(submitted.group_id)
    assert stats.group_status is RunStatus.COMPLETED, await fleet.engine.attempts(1)
    return dict((await fleet.engine.steps(submitted.runs[0]))[-1].status_meta)


async def test_runs_for_items_of_one_document_have_artifacts_of_their_own(fleet, blobs):
    found = await joined(fleet, [1, 2, 3])
    assert found["texts"] == ["page 1", "page 2", "page 3"]
    assert found["notes"] == ["note 1", "note 2", "note 3"]
    assert found["params"] == [{"page": 1}, {"page": 2}, {"page": 3}]
    first = await paths(blobs)
    assert len([path for path in first if path.startswith("markdown/")]) == 3
    # the same document done again alike: the same places
    await joined(fleet, [1, 2, 3])
    assert await paths(blobs) == first
    # split otherwise, its page 1 is another thing
    await joined(fleet, [1], size=2)
    assert len([path for path in await paths(blobs) if path.startswith("markdown/")]) == 4
    # they are artifacts of the document, and go with it
    removed = await fleet.documents.delete_uri("a.txt", "folder")
    assert (removed["deleted_artifacts"], await paths(blobs)) == (3 * 4 + 1, [])


async def test_items_that_were_given_the_same_do_not_overwrite_each_other(fleet, blobs):
    found = await joined(fleet, ["x", "x"])
    assert found["texts"] == ["page x", "page x"]
    assert len([path for path in await paths(blobs) if path.startswith("markdown/")]) == 2
