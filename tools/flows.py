"""Trace six flows through the product: which files and functions run, in which order.

    python tools/flows.py                     a table of the flows
    python tools/flows.py start --files       the files of a flow, in the order of their first call
    python tools/flows.py start --functions   every function, as it is first called

The servers are those of the machine, or at FLOWS_POSTGRESQL and FLOWS_REDIS. The chains of files in
the READMEs of the packages are compared with what runs by tests/e2e/workspace/test_flows.py.

A *return* is a function called for the first time in a file that was left before: the moment a
reader of the flow turns back to a file. Every flow runs beforehand, with the same bus, engine and
worker, so that imports, generated code, caches and start-up are not part of what is traced.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parent.parent
SOURCES = tuple(f"{path}/lexigram/" for path in ROOT.glob("lexigram*/src"))
POSTGRESQL = os.environ.get("FLOWS_POSTGRESQL", "postgresql://postgres@127.0.0.1:5432/test")
_SETTLED = 0.5  # seconds until a worker that starts, or has ended a run, waits for the next one
REDIS = os.environ.get("FLOWS_REDIS", "redis://127.0.0.1:6379/0")


class Trace:
    """The functions of a flow in the order of their first call, as (file, function)."""

    def __init__(self) -> None:
        self.functions: list[tuple[str, str]] = []
        self._known: set[Any] = set()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of this thread, and of threads that start meanwhile."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._known or code.co_name.startswith("<"):
            return
        self._known.add(code)
        for source in SOURCES:
            if code.co_filename.startswith(source):
                self.functions.append((code.co_filename.removeprefix(source), code.co_qualname))

    @property
    def files(self) -> list[str]:
        """Each file once, in the order of its first call."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    @property
    def returns(self) -> int:
        """How often a reader turns back to a file."""
        seen: set[str] = set()
        returns, current = 0, ""
        for file, _ in self.functions:
            if file != current:
                returns += file in seen
                current = file
                seen.add(file)
        return returns


async def start(trace: Trace) -> None:
    """An application of three modules boots and stops."""
    from examples.hello.app import create

    for recording in (contextlib.nullcontext(), trace.recording()):
        application = create()
        with recording:
            await application.start()
        await application.stop()


async def redis(trace: Trace) -> None:
    """A message is published to Redis, handled and acknowledged."""
    from redis.asyncio import Redis

    from lexigram.contracts.queue import BusMessage
    from lexigram.queue.backends.redis import RedisQueue

    handled = anyio.Event()

    async def handle(_: BusMessage) -> None:
        handled.set()

    prefix = f"flows-{os.getpid()}"
    async with Redis.from_url(REDIS) as client:

        async def acknowledged() -> None:
            """By a client of our own: it is no part of the flow."""
            while await _pending(client, prefix):  # noqa: ASYNC110 - Redis has nothing to wait on
                await anyio.sleep(0.01)

        try:
            async with RedisQueue(REDIS, prefix=prefix) as queue:
                await queue.subscribe("flows", handle)
                for recording in (contextlib.nullcontext(), trace.recording()):
                    handled = anyio.Event()
                    with recording:
                        await queue.publish("flows", BusMessage(payload={"hello": 1}))
                        await handled.wait()
                        await acknowledged()
        finally:
            await client.delete(*await client.keys(f"{prefix}*"))


async def _pending(client: Any, prefix: str) -> int:
    """How many messages of the streams were received and not acknowledged."""
    pending = 0
    for key in await client.keys(f"{prefix}*"):
        if await client.type(key) == b"stream":
            pending += sum(group["pending"] for group in await client.xinfo_groups(key))
    return pending


async def durable(trace: Trace) -> None:
    """A run of one step is submitted to PostgreSQL, and a worker claims, handles and finishes it."""
    import asyncpg  # type: ignore[import-untyped]

    from lexigram.sql import Database
    from lexigram.sql.migrate import upgrade
    from lexigram.workflow.durable import (
        DurableEngine,
        NewRun,
        RunPlan,
        StepPlan,
        Worker,
        WorkerConfig,
    )

    async def work() -> dict[str, int]:
        return {"ok": 1}

    plan = RunPlan(
        workflow_id="flow", steps=[StepPlan(name="work", step_type="work", handler="work")]
    )
    schema = f"flows_{os.getpid()}"
    # By a connection of our own: it is no part of the flow.
    watcher = await asyncpg.connect(POSTGRESQL)
    ended = f"SELECT completed_at FROM {schema}.lexigram_durable_groups WHERE id = $1"  # noqa: S608 - our own name
    async with Database(POSTGRESQL) as admin:
        await admin.execute(f"CREATE SCHEMA {schema}")
        try:
            async with Database(f"{POSTGRESQL}?search_path={schema}") as database:
                await upgrade(database)
                engine = DurableEngine(database)
                # Longer than the flow: what it polls for is no part of it.
                worker = Worker(WorkerConfig(poll_interval=60.0), engine, {"work": work})
                await worker.start()
                # The first run stores the plan, the second is the first with a stored one.
                for recording in (
                    contextlib.nullcontext(),
                    contextlib.nullcontext(),
                    trace.recording(),
                ):
                    await anyio.sleep(_SETTLED)
                    with recording:
                        group = await engine.submit(plan, [NewRun()])
                        while not await watcher.fetchval(ended, group.group_id):  # noqa: ASYNC110 - no server tells it
                            await anyio.sleep(0.01)
                await worker.stop()
        finally:
            await watcher.close()
            await admin.execute(f"DROP SCHEMA {schema} CASCADE")


async def graph(trace: Trace) -> None:
    """A graph of two nodes runs until it pauses for a person; SQLite keeps it."""
    from lexigram.sql import Database
    from lexigram.sql.migrate import upgrade
    from lexigram.workflow.checkpoint import SqlCheckpointStore
    from lexigram.workflow.errors import HumanInputRequiredError
    from lexigram.workflow.graph import WorkflowBuilder

    with tempfile.TemporaryDirectory() as folder:
        async with Database(f"sqlite:///{folder}/graph.db") as database:
            await upgrade(database)
            builder = WorkflowBuilder("review")
            builder.add_node("draft", lambda state: {"draft": state["input"]})
            builder.add_node("ask", human_prompt="send {draft}?", output_key="said")
            builder.add_edge("draft", "ask").set_entry("draft").set_terminal("ask")
            for recording in (contextlib.nullcontext(), trace.recording()):
                engine = builder.build(checkpoints=SqlCheckpointStore(database))
                with recording, contextlib.suppress(HumanInputRequiredError):
                    await engine.execute("a letter")


def ingest(trace: Trace) -> None:
    """`lexigram ingest` of one file into an index that exists."""
    with _index() as run, trace.recording():
        run("ingest", "two.md")


def search(trace: Trace) -> None:
    """`lexigram search` in an index of one file."""
    with _index() as run:
        run("search", "letters")
        with trace.recording():
            run("search", "letters")


@contextlib.contextmanager
def _index() -> Iterator[Callable[..., None]]:
    """A folder with an index of one file; yields how to run a command there."""
    from lexigram.cli.main import main

    def run(*arguments: str) -> None:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main([*arguments, "--data", ".lexigram"])
        if code:
            raise SystemExit(f"lexigram {' '.join(arguments)} failed:\n{output.getvalue()}")

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name in ("one", "two"):
            Path(f"{name}.md").write_text(f"# File {name}\n\nLetters of file {name}.\n")
        run("ingest", "one.md")
        yield run


FLOWS: dict[str, Callable[[Trace], Awaitable[None] | None]] = {
    "start": start,
    "redis": redis,
    "durable": durable,
    "graph": graph,
    "ingest": ingest,
    "search": search,
}


def trace_flow(name: str) -> Trace:
    """Run a flow and return what ran."""
    trace, flow = Trace(), FLOWS[name]
    if name in {"ingest", "search"}:
        flow(trace)
    else:
        anyio.run(flow, trace)  # type: ignore[arg-type] # the coroutine functions of the table
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("flows", nargs="*", metavar="flow", help=f"of {', '.join(FLOWS)}; all")
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--functions", action="store_true", help="list the functions")
    options = parser.parse_args()
    if unknown := set(options.flows) - set(FLOWS):
        parser.error(f"unknown flow {', '.join(sorted(unknown))}; choose of {', '.join(FLOWS)}")
    print("| flow | files | functions | returns |\n|---|---|---|---|")
    for name in options.flows or FLOWS:
        trace = trace_flow(name)
        print(f"| {name} | {len(trace.files)} | {len(trace.functions)} | {trace.returns} |")
        for file in trace.files if options.files else ():
            print(f"    {file}")
        for file, function in trace.functions if options.functions else ():
            print(f"    {file}: {function}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
