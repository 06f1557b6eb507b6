"""``lexigram ingest`` in processes of its own: killed, interrupted, doubled, with a bad endpoint."""

import asyncio
import collections
import hashlib
import os
import re
import signal

import anyio
import pytest
from tests.e2e.ai.conftest import HASHING, artifacts, ended, rows
from tests.integration.ai.embeddings.endpoint import fails, good, hangs, one_missing, serving

from lexigram.cli import ExitCode
from lexigram.testing import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(900)]

# `make chaos` runs the full counts, every other run short ones.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
FILES, KILLS = (500, 5) if FULL else (60, 5)
PARTS = 5
GUARD = 300.0
MARK = re.compile(r"number (\d+)\.")
# Of a process that is killed; one that lives keeps them on a busy machine too.
LEASES = {
    "LEX_WORKFLOW__DURABLE__CHECKIN_INTERVAL": "0.3",
    "LEX_WORKFLOW__DURABLE__CHECKIN_TIMEOUT": "4",
}


@pytest.fixture
async def endpoint():
    async with serving() as made:
        yield made


def using(endpoint, **settings):
    """Variables that make the endpoint the model."""
    found = {
        "provider": "openai",
        "url": endpoint.url,
        "model": "double",
        "dimension": endpoint.dimension,
        **settings,
    }
    return {f"LEX_AI_WORKERS__EMBEDDINGS__{k.upper()}": str(v) for k, v in found.items()}


def write(folder, numbers):
    """Files of several passages, each with the number of its file in it."""
    folder.mkdir(exist_ok=True)
    hashes = {}
    for number in numbers:
        parts = [
            f"## Part {part}\n\n" + f"Text {part} of file number {number}. " * 60
            for part in range(PARTS)
        ]
        data = (f"# File {number}\n\n" + "\n\n".join(parts)).encode()
        (folder / f"file-{number:03}.md").write_bytes(data)
        hashes[number] = "sha256-" + hashlib.sha256(data).hexdigest()
    return hashes


def asked(endpoint):
    """How often each text was sent to the model."""
    return collections.Counter(text for one in endpoint.requests for text in one["input"])


def check_index(found, folder, files):
    """Every file with all its chunks, and no chunk twice."""
    assert len({one.id for one in found}) == len(found)
    by_uri = collections.Counter(one.metadata["uri"] for one in found)
    assert set(by_uri) == {str(path) for path in folder.iterdir()}
    assert len(by_uri) == files
    assert {one.metadata["chunk_count"] - by_uri[one.metadata["uri"]] for one in found} == {0}


@pytest.mark.parametrize(
    ("files", "kills"), [pytest.param(20, 1, marks=pytest.mark.promise), (FILES, KILLS)]
)
async def test_killed_at_any_moments_it_goes_on_without_losing_or_doubling(
    endpoint, start, here, tmp_path, seed, files, kills
):
    hashes = write(tmp_path / "files", range(files))
    numbers = {digest: number for number, digest in hashes.items()}
    data, env = tmp_path / ".lexigram", {**using(endpoint, batch_size=4), **LEASES}
    finished: dict[str, int] = {}  # texts whose vectors were kept when we struck -> times asked
    # The last one late: something must have been kept by then.
    moments = [*sorted(seed.uniform(0.05, 0.9) for _ in range(kills - 1)), seed.uniform(0.6, 0.9)]
    for moment in moments:
        process = start("ingest", "files", "--json", env=env)

        def is_time(moment=moment, process=process):
            return len(asked(endpoint)) >= moment * files * PARTS or process.poll() is not None

        with anyio.fail_after(GUARD):
            await wait_until(is_time, timeout=GUARD)
        await anyio.sleep(seed.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        await ended(process)
        kept = {numbers[digest] for kind, digest in artifacts(data) if kind == "embeddings"}
        for text, count in asked(endpoint).items():
            if int(MARK.search(text)[1]) in kept:
                finished.setdefault(text, count)
    last = await here("ingest", "files", "--json", env=env)
    assert last.code == 0, last.err
    assert last.data["failed"] == 0
    check_index(await rows(data), tmp_path / "files", files)
    assert {digest for _, digest in artifacts(data)} == set(hashes.values())
    by_kind = collections.Counter(kind for kind, _ in artifacts(data))
    assert set(by_kind.values()) == {files}
    assert finished, "no blow fell while work was being done"
    now = asked(endpoint)
    assert [text for text, count in finished.items() if now[text] != count] == []


@pytest.mark.promise
async def test_ctrl_c_ends_it_cleanly_and_a_second_run_goes_on(endpoint, start, here, tmp_path):
    write(tmp_path / "files", range(20))
    env = using(endpoint)

    def pause(made, request):
        made.hold = asyncio.Event()  # for the requests after this one
        return good(made, request)

    endpoint.script = [good] * 5 + [pause]
    process = start("ingest", "files", "--json", env=env)
    await wait_until(lambda: endpoint.hold is not None, timeout=GUARD)
    process.send_signal(signal.SIGINT)
    endpoint.hold.set()
    stopped = await ended(process)
    assert stopped.code == ExitCode.INTERRUPTED, stopped.err
    status = (await here("ingest", "status", "--json", env=env)).data["ingestions"][0]
    assert status["status"] == "INTERRUPTED"
    assert status["running"] + status["pending"] > 0
    endpoint.hold = None
    done = await here("ingest", "files", "--json", env=env)
    assert done.code == 0, done.err
    assert done.data["group"] == status["group"]
    check_index(await rows(tmp_path / ".lexigram"), tmp_path / "files", 20)
    assert set(asked(endpoint).values()) == {1}


async def test_two_processes_with_common_files_leave_each_chunk_once(start, here, tmp_path):
    files = tmp_path / "files"
    for name, numbers in {"left": range(10), "both": range(10, 20), "right": range(20, 30)}.items():
        files.mkdir(exist_ok=True)
        write(files / name, numbers)
    started = [
        start("ingest", files / one, files / "both", "--json", env=HASHING)
        for one in ("left", "right")
    ]
    for process in started:
        said = await ended(process)
        assert said.code == 0, said.err
        assert said.data["indexed"] == 20
    found = await rows(tmp_path / ".lexigram")
    assert len({one.id for one in found}) == len(found)
    assert len({one.metadata["uri"] for one in found}) == 30
    again = await here("ingest", files / "left", files / "both", "--json", env=HASHING)
    assert (again.data["unchanged"], again.data["embedded"]) == (20, 0)


async def test_a_misbehaving_endpoint_is_tried_again_and_nothing_is_half_stored(
    endpoint, here, tmp_path
):
    write(tmp_path / "files", [1])
    env = using(endpoint, timeout=5, max_retries=1)  # an answer comes in time on any machine
    slow_down = fails(429, {"Retry-After": "0.1"})
    endpoint.script = [slow_down, fails(500), one_missing, hangs]
    done = await here("ingest", "files", "--json", env=env)
    assert done.code == 0, done.err
    assert len(endpoint.requests) == 5
    check_index(await rows(tmp_path / ".lexigram"), tmp_path / "files", 1)


async def test_an_endpoint_that_never_behaves_leaves_nothing_in_the_index(endpoint, here, tmp_path):
    write(tmp_path / "files", [1])
    env = using(endpoint, max_retries=0)
    endpoint.script = [one_missing] * 50
    said = await here("ingest", "files", "--json", env=env)
    assert said.code == ExitCode.FAILURE
    [failure] = said.data["failures"]
    assert failure["step"] == "embed"
    assert await rows(tmp_path / ".lexigram") == []
    assert "embeddings" not in dict(artifacts(tmp_path / ".lexigram"))
    endpoint.script = []
    again = await here("ingest", "files", "--json", env=env)
    assert again.code == 0
    check_index(await rows(tmp_path / ".lexigram"), tmp_path / "files", 1)


async def test_watching_ingests_what_changes_until_ctrl_c(start, tmp_path):
    write(tmp_path / "files", [1])
    command = ("ingest", "files", "--watch", "--every", "0.1", "--prune", "--json")
    process = start(*command, env=HASHING)
    assert '"indexed": 1' in await anyio.to_thread.run_sync(process.stdout.readline)
    write(tmp_path / "files", [2])
    assert '"indexed": 1' in await anyio.to_thread.run_sync(process.stdout.readline)
    (tmp_path / "files" / "empty.md").touch()
    assert '"failed": 1' in await anyio.to_thread.run_sync(process.stdout.readline)
    (tmp_path / "files" / "empty.md").unlink()
    (tmp_path / "files" / "file-001.md").unlink()
    assert '"removed": 1' in await anyio.to_thread.run_sync(process.stdout.readline)
    process.send_signal(signal.SIGINT)
    assert (await ended(process)).code == ExitCode.INTERRUPTED
    check_index(await rows(tmp_path / ".lexigram"), tmp_path / "files", 1)
