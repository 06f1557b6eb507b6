"""The chain of files that a README names for a flow is the chain that runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Flow -> package, the folder of its paths, and how the paragraph of its README begins.
CHAINS = {
    "start": ("lexigram", "", "An application starts:"),
    "redis": ("lexigram_queue", "queue/", "A message travels through Redis:"),
    "durable": ("lexigram_workflow", "workflow/", "A durable run on PostgreSQL,"),
    "graph": ("lexigram_workflow", "workflow/", "A graph runs and pauses:"),
    "ingest": ("lexigram_ai_workers", "ai/workers/", "Files are ingested:"),
    "search": ("lexigram_ai_workers", "ai/workers/", "An index is searched:"),
}
pytestmark = pytest.mark.timeout(600)  # of processes on a busy machine

MIN_SHARE = 1 / 3  # of the functions of its package that run
MAX_FILES = 10  # a newcomer opens no more


@pytest.fixture
def addresses(request):
    """Where the servers of a flow are that needs some."""
    wanted = {name for mark in request.node.iter_markers("service") for name in mark.args}
    services = request.getfixturevalue("services") if wanted else {}
    forms = {"redis": "redis://{}/0", "postgresql": "postgresql://postgres@{}/test"}
    return {f"FLOWS_{name.upper()}": forms[name].format(services[name].address) for name in wanted}


@pytest.mark.parametrize(
    "flow",
    [
        "start",
        "graph",
        "ingest",
        "search",
        pytest.param("redis", marks=pytest.mark.service("redis")),
        pytest.param("durable", marks=pytest.mark.service("postgresql")),
    ],
)
def test_the_chain_of_a_readme_is_what_runs(flow, addresses):
    package, folder, beginning = CHAINS[flow]
    named = [folder + file for file in chain_of(ROOT / package / "README.md", beginning)]
    called = [call for call in trace(flow, addresses) if call.startswith(folder)]
    files = list(dict.fromkeys(call.partition(":")[0] for call in called))
    assert [file for file in files if file in named] == named
    assert 4 <= len(named) <= MAX_FILES
    shown = [call for call in called if call.partition(":")[0] in named]
    assert len(shown) / len(called) >= MIN_SHARE


def test_a_chain_ends_with_its_sentence(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("A run: `a.py` (x) →\n`b/c.py` (y). Others are in `d.py`.\n\nA walk: `e.py`.\n")
    assert chain_of(page, "A run:") == ["a.py", "b/c.py"]


def chain_of(page, beginning):
    """The files of the sentence that begins so."""
    _, _, text = page.read_text(encoding="utf-8").partition(f"\n\n{beginning}")
    if not text:
        text = page.read_text(encoding="utf-8").partition(beginning)[2]
    sentence = re.split(r"[.;](?=\s|$)", text, maxsplit=1)[0]
    return re.findall(r"`([\w/]+\.py)`", sentence)


def trace(flow, addresses):
    """The functions of the flow, as ``file: function``, in the order of their first call."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "flows.py", flow, "--functions"],
        env={**os.environ, **addresses},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("    ")]
