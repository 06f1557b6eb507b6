"""A small disk of a test's own, which can really be full."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Mounted in a name space of its own: it goes away with the process, however that ends.
OWN_MOUNTS = ["unshare", "--mount"]
# A user who is not root is root in a user name space, where the machine allows those.
AS_ROOT = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def run_on_small_disk(code: str, folder: Path, *, size: str) -> "subprocess.CompletedProcess[str]":
    """Run Python code with a file system of ``size`` at ``folder``, which is its argument."""
    mount = f'mount -t tmpfs -o size={size} lexigram "$0" && exec "$@"'
    command = [*OWN_MOUNTS, *AS_ROOT, "sh", "-c", mount, str(folder)]
    try:
        probe = subprocess.run([*command, "true"], check=False, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare here, to mount a file system")
    if probe.returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    return subprocess.run(
        [*command, sys.executable, "-c", code, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def fill(ballast: Path) -> None:
    """Write until there is no room."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
