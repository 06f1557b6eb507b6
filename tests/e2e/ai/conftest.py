"""``lexigram ingest`` and ``search`` as a user has them: in this process, or in one of their own."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from attrs import frozen
from tests.processes import Popen

from lexigram.ai.workers.vectors.lancedb import LanceVectorStore
from lexigram.cli.main import main
from lexigram.contracts.data.vector import SearchQuery

LEXIGRAM = Path(sys.executable).with_name("lexigram")
HASHING = {"LEX_AI_WORKERS__EMBEDDINGS__PROVIDER": "hashing"}


@pytest.fixture(autouse=True)
def this_test_may_block(blocking_calls_fail):
    """It starts processes and reads files; the library is watched elsewhere."""
    blocking_calls_fail.deactivate()


@pytest.fixture
def seed():
    number = int(os.environ.get("LEX_CHAOS_SEED", random.randrange(2**32)))
    print(f"LEX_CHAOS_SEED={number}")
    return random.Random(number)


@frozen
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def lex(tmp_path, monkeypatch, capsys):
    """Run a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name, value in HASHING.items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        capsys.readouterr()
        code = main([str(part) for part in arguments])
        printed = capsys.readouterr()
        return Said(code, printed.out, printed.err)

    return run


@pytest.fixture
def here(lex, monkeypatch):
    """The same in a thread, while the endpoint of the test answers; no process has to start."""

    async def run(*arguments, env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return await anyio.to_thread.run_sync(lambda: lex(*arguments))

    return run


@pytest.fixture
def start(tmp_path):
    """Start a command in a process of its own; what is left is killed at the end."""
    processes = []

    def start(*arguments, env):
        process = Popen(
            [LEXIGRAM, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.communicate()


async def ended(process):
    """Wait for it in a thread: the endpoint of the test answers meanwhile."""
    out, err = await anyio.to_thread.run_sync(process.communicate)
    return Said(process.returncode, out, err)


async def rows(folder):
    """Every row of the index in the folder."""
    store = LanceVectorStore(folder / "lancedb" / "default")
    if not await store.collection_exists("documents"):
        return []
    collection = await store.get_collection("documents")
    direction = [1.0] + [0.0] * (collection.dimension - 1)
    query = SearchQuery(vector=direction, top_k=max(1, await collection.count()))
    found = await collection.search(query)
    assert len(found) == await collection.count()
    await store.disconnect()
    return found


def artifacts(folder):
    """Blobs of documents as (kind, hash). Half an upload is none: the store sweeps ``.uploads``."""
    found = [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    inside = [path.relative_to(folder / "blobs").parts for path in found]
    return [(parts[0], parts[-1]) for parts in inside if parts[0] not in ("ingest", ".uploads")]
