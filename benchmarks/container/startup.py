"""What a process pays before its first request: imports, the command line, fifty providers."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

from harness import Case, Plan, Section, Target, Work, measure

LIMIT = "import asyncio, anyio, attrs"
OURS = "from lexigram.app import Application"
HEADER = f"{OURS}; from lexigram.di import Module, Provider, module"
FIRST = "the same, then start and stop an empty application"
IMPORTS = (
    LIMIT,
    OURS,
    HEADER,
    FIRST,
    "from lexigram.di import Container",
    "import rodi",
    "import dependency_injector.providers, dependency_injector.containers",
    "import that_depends",
    "import wireup",
    "import dishka",
)
clock = time.perf_counter_ns


async def sections(plan: Plan) -> list[Section]:
    return [await _imports(plan), await _command(plan), await _application(plan)]


async def _imports(plan: Plan) -> Section:
    skipped = []
    wanted = list(IMPORTS)
    if not _there("lexigram.app"):
        wanted = [statement for statement in wanted if statement not in (OURS, HEADER, FIRST)]
        skipped.append(f"`{OURS}`, because lexigram.app is not there yet")
    cases = [Case(statement, _importing(statement), loops=1) for statement in wanted]
    work = Work("in a new process", "ms", LIMIT, cases, {OURS: Target(1.4, LIMIT)})
    for case in cases:
        case.run(1)  # byte code is written once, not every time
    await measure([work], plan, plan.few(15))
    note = (
        "Time inside the process, from before the statement until after it. Container, model and "
        "configuration load on first use, so the lines below ours show what a real program pays: "
        "the header of its main module, and its first start."
    )
    return Section("Import", note, [work], skipped=skipped)


def _importing(statement: str):
    if statement == FIRST:
        start = "async with Application('empty'): pass"
        statement = f"{HEADER}\nimport anyio\nasync def main():\n    {start}\nanyio.run(main)"
    code = (
        "from time import perf_counter_ns as clock\nstart = clock()\n"
        f"{statement}\nprint(clock() - start)"
    )

    def run(loops: int) -> int:
        done = _process([sys.executable, "-I", "-c", code])
        return int(done.stdout)

    return run


async def _command(plan: Plan) -> Section:
    bare, ours = "python -c pass", "lexigram --help"
    title, note = "Command line", "Wall time of the whole process."
    script = Path(sys.executable).with_name("lexigram")
    if not (script.exists() and _there("lexigram.cli.main")):
        return Section(
            title, note, [], skipped=["`lexigram --help`, because lexigram.cli is not there yet"]
        )
    cases = [
        Case(bare, _running([sys.executable, "-c", "pass"]), loops=1),
        Case(ours, _running([str(script), "--help"]), loops=1),
    ]
    for case in cases:
        case.run(1)
    work = Work("command", "ms", bare, cases, {ours: Target(400)})
    await measure([work], plan, plan.few(15))
    return Section(title, note, [work])


def _running(command: list[str]):
    def run(loops: int) -> int:
        start = clock()
        _process(command)
        return clock() - start

    return run


def _process(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LEX_"))}
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[1:])}\nexit code {done.returncode}\n{done.stderr}")
    return done


async def _application(plan: Plan) -> Section:
    title = "An application of 50 providers"
    note = (
        "Five levels of ten; each provider registers a service, and resolves it in its boot. "
        "Everything is imported. `constructed` is without the start, `hand-written` calls the "
        "same methods of the same providers one after the other on a bare container."
    )
    if not _there("lexigram.app"):
        reason = "start of an application, because lexigram.app is not there yet"
        return Section(title, note, [], skipped=[reason])
    from container import fifty

    cases = [
        Case("hand-written", fifty.by_hand, loops=1),
        Case("constructed", fifty.constructed, loops=1),
        Case("started", fifty.started, loops=1),
        Case("started, nothing resolved", fifty.registered, loops=1),
        Case("stopped", fifty.stopped, loops=1),
    ]
    for case in cases:
        await case.run(1)  # what is imported on first use is imported now
    gc.collect()
    work = Work(
        "50 providers",
        "ms",
        "hand-written",
        cases,
        {"started": Target(5), "started, nothing resolved": Target(5)},
    )
    await measure([work], plan, plan.few(41))
    return Section(title, note, [work])


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
