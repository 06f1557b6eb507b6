"""Run a verb of the Makefile in the environment that runs the tests."""

import os
import subprocess
import sys

from docblocks import ROOT

# Relative: make takes a path with a space in it, as that of the checkout may be, for two paths.
VENV = os.path.relpath(sys.prefix, ROOT)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """`make WORDS`; an environment that runs tests is never set up again by one of them."""
    return subprocess.run(
        ["make", "-o", f"{VENV}/.ready", f"VENV={VENV}", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
