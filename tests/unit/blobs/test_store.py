import hashlib
import os
import time

import anyio
import pytest

from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule, BlobStore, ContentStore
from lexigram.config import LexigramConfig
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.data.blobs import (
    BlobCorruptError,
    BlobError,
    BlobNotFoundError,
    BlobPathError,
    BlobStoreProtocol,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path):
    return await BlobStore.open(BlobConfig(root=str(tmp_path / "blobs")))


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


async def pieces(*parts):
    for part in parts:
        yield part


def calls(store, path):
    return (
        lambda: store.upload(path, b"x"),
        lambda: store.upload_stream(path, pieces(b"x")),
        lambda: store.download(path),
        lambda: store.stat(path),
        lambda: store.exists(path),
        lambda: store.delete(path),
    )


async def test_a_link_that_leads_out_is_refused_by_every_method(store, tmp_path, outside):
    (tmp_path / "blobs" / "folder").symlink_to(outside)
    (tmp_path / "blobs" / "file").symlink_to(outside / "secret")
    (tmp_path / "blobs" / "dangling").symlink_to(outside / "new")
    for path in ("folder/secret", "folder/new", "file", "dangling"):
        for call in calls(store, path):
            with pytest.raises(BlobPathError, match=f"'{path}'.*a link leads it out"):
                await call()
    with pytest.raises(BlobPathError, match="a link leads it out"):
        [info async for info in store.list("folder/")]
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"


async def test_links_that_lead_out_are_not_listed(store, tmp_path, outside):
    await store.upload("mine", b"x")
    (tmp_path / "blobs" / "folder").symlink_to(outside)
    (tmp_path / "blobs" / "file").symlink_to(outside / "secret")
    assert [info.path async for info in store.list()] == ["mine"]


async def test_a_link_that_stays_inside_is_followed(store, tmp_path):
    await store.upload("a/b", b"x")
    (tmp_path / "blobs" / "alias").symlink_to(tmp_path / "blobs" / "a")
    assert await store.download("alias/b") == b"x"


async def test_the_root_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = await BlobStore.open(BlobConfig(root=str(tmp_path / "link")))
    await store.upload("a", b"x")
    assert (tmp_path / "real" / "a").read_bytes() == b"x"


async def test_the_folder_of_unfinished_uploads_is_nobodys_path(store):
    for call in calls(store, ".uploads/x"):
        with pytest.raises(BlobPathError, match="kept for blobs that are being written"):
            await call()


async def test_of_many_who_remove_a_blob_at_once_none_fails(store):
    answers = []

    async def remove(path):
        answers.append(await store.delete(path))

    for number in range(50):
        await store.upload(f"a/{number}", b"x")
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(remove, f"a/{number}")
    assert len(answers) == 200
    assert answers.count(True) >= 50
    assert [info async for info in store.list("a/")] == []


async def test_a_corrupted_blob_is_found_when_the_hash_is_asked_for(store, tmp_path):
    content = ContentStore(store)
    digest = await content.put(b"x" * 100_000)
    file = tmp_path / "blobs" / content.path(digest)
    damaged = bytearray(file.read_bytes())
    damaged[50_000] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(BlobCorruptError) as caught:
        await content.get(digest)
    assert caught.value.details["sha256"] == digest
    assert caught.value.details["found"] == hashlib.sha256(damaged).hexdigest()
    with pytest.raises(BlobCorruptError):
        [piece async for piece in content.get_stream(digest)]
    assert await store.download(content.path(digest)) == bytes(damaged)  # not asked, not checked


async def test_a_blob_in_the_way_of_a_folder_is_told(store, tmp_path):
    await store.upload("a", b"x")
    for write in calls(store, "a/b")[:2]:
        with pytest.raises(BlobPathError, match="in its way"):
            await write()
    await store.upload("folder/x", b"x")
    for write in calls(store, "folder")[:2]:
        with pytest.raises(BlobPathError, match="in its way"):
            await write()
    assert list((tmp_path / "blobs" / ".uploads").iterdir()) == []


async def test_a_folder_that_cannot_be_written_is_a_blob_error(store, tmp_path):
    (tmp_path / "blobs" / ".uploads").write_text("no folder")
    for write in calls(store, "a")[:2]:
        with pytest.raises(BlobError):
            await write()
    assert not await store.exists("a")


async def test_a_failed_upload_leaves_nothing_behind(store, tmp_path):
    async def failing():
        yield b"x" * 20_000_000
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await store.upload_stream("a", failing())
    assert list((tmp_path / "blobs" / ".uploads").iterdir()) == []


async def test_what_a_dead_writer_left_is_swept_when_it_is_old(tmp_path):
    config = BlobConfig(root=str(tmp_path), stale_upload_after=60)
    store = await BlobStore.open(config)
    await store.upload("kept", b"x")
    (tmp_path / ".uploads" / "old").write_bytes(b"half")
    (tmp_path / ".uploads" / "young").write_bytes(b"half")
    os.utime(tmp_path / ".uploads" / "old", (time.time() - 61,) * 2)
    assert await store.sweep() == 1
    assert [path.name for path in (tmp_path / ".uploads").iterdir()] == ["young"]
    assert await store.download("kept") == b"x"
    assert [info.path async for info in store.list()] == ["kept"]


async def test_a_stream_is_written_and_read_in_bounded_memory(tmp_path):
    import resource

    store = await BlobStore.open(BlobConfig(root=str(tmp_path)))
    piece = os.urandom(1024 * 1024)
    await store.upload("warm", piece)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def source():
        for _ in range(200):
            yield piece

    await store.upload_stream("big", source())
    size = 0
    async for part in store.download_stream("big"):
        size += len(part)
    assert size == 200 * len(piece)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 * 1024  # KiB; the blob has 200 MiB


# Content-addressed.


async def test_the_same_content_is_written_once(tmp_path):
    store = await BlobStore.open(BlobConfig(root=str(tmp_path)))
    content = ContentStore(store)
    digest = await content.put(b"same")
    written = (tmp_path / content.path(digest)).stat().st_ino
    assert await content.put(b"same") == digest
    assert await content.put_stream(pieces(b"sa", b"me")) == digest
    assert (tmp_path / content.path(digest)).stat().st_ino == written
    assert [info.path async for info in store.list()] == [content.path(digest)]
    assert await content.get(digest) == b"same"


async def test_a_large_stream_is_kept_under_its_hash(tmp_path):
    content = ContentStore(await BlobStore.open(BlobConfig(root=str(tmp_path))))
    data = os.urandom(9_000_000)
    digest = await content.put_stream(pieces(data[:5_000_000], data[5_000_000:]))
    assert digest == hashlib.sha256(data).hexdigest()
    assert b"".join([piece async for piece in content.get_stream(digest)]) == data


async def test_content_cut_short_is_written_again(tmp_path):
    content = ContentStore(await BlobStore.open(BlobConfig(root=str(tmp_path))))
    digest = await content.put(b"whole")
    (tmp_path / content.path(digest)).write_bytes(b"who")
    assert await content.put(b"whole") == digest
    assert await content.get(digest) == b"whole"


async def test_content_is_removed_and_missed():
    content = ContentStore(await BlobStore.open(BlobConfig(scheme="memory")))
    digest = await content.put(b"x")
    assert await content.exists(digest)
    assert await content.delete(digest)
    assert not await content.exists(digest)
    with pytest.raises(BlobNotFoundError):
        await content.get(digest)


@pytest.mark.parametrize("digest", ["", "../../x", "A" * 64, "a" * 63, "g" * 64])
async def test_what_is_no_hash_is_refused(digest):
    content = ContentStore(await BlobStore.open(BlobConfig(scheme="memory")))
    with pytest.raises(BlobPathError, match="is not a sha256"):
        await content.get(digest)


# Configuration.


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (BlobConfig(scheme="memroy"), "no service 'memroy' (did you mean 'memory'?)"),
        (BlobConfig(options={"rot": "/x"}), "fs has no option 'rot' (did you mean 'root'?)"),
        (BlobConfig(scheme="ftp"), "ftp cannot write a blob all at once"),
        (BlobConfig(scheme="s3"), "the blob store s3 cannot be set up: ConfigInvalid"),
    ],
)
async def test_a_wrong_store_is_told_by_name(config, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        await BlobStore.open(config)
    assert text in str(caught.value)


async def test_any_other_service_of_opendal_works_by_name():
    store = await BlobStore.open(BlobConfig(scheme="dashmap"))
    await store.upload("a/b", b"x")
    assert await store.download("a/b") == b"x"
    assert [info.path async for info in store.list("a/")] == ["a/b"]


async def test_the_module_reads_its_section(tmp_path):
    config = LexigramConfig(sections={"blobs": {"root": str(tmp_path / "here")}})
    async with Application("app", config, modules=[BlobModule]) as app:
        store = app.container.get(BlobStoreProtocol)
        await store.upload("a", b"x")
        assert (tmp_path / "here" / "a").read_bytes() == b"x"
        assert app.container.get(BlobStore) is store
        digest = await app.container.get(ContentStore).put(b"y")
        assert await store.download(f"sha256/{digest[:2]}/{digest}") == b"y"
        assert (await app.health_check()).status is HealthStatus.HEALTHY


async def test_a_stub_keeps_blobs_in_memory_and_shares_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with Application("app", LexigramConfig(), modules=[BlobModule.stub()]) as app:
        await app.container.get(BlobStoreProtocol).upload("a", b"x")
    async with Application("app", LexigramConfig(), modules=[BlobModule.stub()]) as app:
        assert not await app.container.get(BlobStoreProtocol).exists("a")
    assert list(tmp_path.iterdir()) == []


async def test_the_start_sweeps_what_dead_writers_left(tmp_path):
    (tmp_path / ".uploads").mkdir()
    left = tmp_path / ".uploads" / "left"
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 7200,) * 2)
    config = BlobConfig(root=str(tmp_path))
    async with Application("app", LexigramConfig(), modules=[BlobModule.configure(config)]):
        assert not left.exists()


async def test_a_store_that_does_not_answer_is_unhealthy():
    options = {"bucket": "none", "region": "us-east-1", "endpoint": "http://127.0.0.1:9"}
    options |= {"access_key_id": "test", "secret_access_key": "test"}
    config = BlobConfig(scheme="s3", options=options)
    async with Application("app", LexigramConfig(), modules=[BlobModule.configure(config)]) as app:
        health = await app.health_check(timeout=0.5)
        assert health.status is HealthStatus.UNHEALTHY


def test_memory_is_no_place_for_blobs_in_production():
    from lexigram.config import Environment

    issues = BlobConfig(scheme="memory").validate_for_environment(Environment.PRODUCTION)
    assert [issue.field for issue in issues] == ["scheme"]
    assert BlobConfig().validate_for_environment(Environment.PRODUCTION) == []
