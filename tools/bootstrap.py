"""Make a virtual environment with everything a Makefile verb needs; only python3 is required.

Written for any Python 3.8+, because it may be started by an old ``python3`` to find a newer one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.13", "3.12", "3.11")
MEMBERS = (
    "lexigram_contracts",
    "lexigram",
    "lexigram_queue",
    "lexigram_workflow",
    "lexigram_ai_workers",
)
# Every extra is installed here, so that nothing goes untested for want of a library.
EXTRAS = {
    "lexigram": "[postgres,redis,otel,prometheus,web]",
    "lexigram_queue": "[all]",
    "lexigram_ai_workers": "[durable,office,onnx,qdrant]",
}


def main() -> None:
    options = _arguments()
    started = time.monotonic()
    venv = ROOT / options.venv
    python = venv / "bin" / "python"
    if not _works(python):
        base = _interpreter(options.python)
        _say(f"making {options.venv} with {base}")
        _run([base, "-m", "venv", "--clear", str(venv)])
    wanted = ["-r", options.requirements] if options.requirements else _dev_requirements()
    paths = [f"./{member}{EXTRAS.get(member, '')}" for member in MEMBERS]
    editable = [part for path in paths for part in ("-e", path)]
    _install(str(python), [*editable, *wanted])
    if not options.requirements:
        _install_doubles(str(python))
    _say(f"{options.venv} is ready ({time.monotonic() - started:.0f} s)")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", help="folder of the environment, relative to the repository")
    parser.add_argument("--python", default="", help="version such as 3.13; default: python3")
    parser.add_argument("--requirements", default="", help="install this file, not the dev tools")
    return parser.parse_args()


def _dev_requirements() -> list[str]:
    return ["--group", "dev", "-c", "constraints.txt"]


def _install(python: str, arguments: list[str]) -> None:
    """With uv where it can be had, else with pip; the second also after a failure of the first."""
    if _have_uv(python):
        _say("installing with uv")
        command = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
        if _run([*command, *arguments], check=False) == 0:
            return
        _say("uv did not manage, trying pip")
    _say("installing with pip (this takes a minute or two)")
    _run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"])  # knows --group
    _run([python, "-m", "pip", "install", "--quiet", *arguments])


def _install_doubles(python: str) -> None:
    """What has to be compiled; a machine without a compiler goes on without it."""
    command = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    arguments = ["--group", "doubles", "-c", "constraints.txt"]
    if _run([*command, *arguments], check=False, quiet=True) != 0:
        _say("no compiler for the double of Service Bus: its tests will be skipped")


def _have_uv(python: str) -> bool:
    probe = [python, "-m", "uv", "--version"]
    if _run(probe, check=False, quiet=True) == 0:
        return True
    _say("fetching uv")
    fetch = [python, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "uv"]
    return _run(fetch, check=False, quiet=True) == 0


def _interpreter(version: str) -> str:
    """The interpreter for a version, or the first supported one when none is named."""
    names = [f"python{version}"] if version else ["python3", *(f"python{v}" for v in SUPPORTED)]
    for name in names:
        path = shutil.which(name)
        if path and _works(path):
            return path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for wanted in [version] if version else list(SUPPORTED):
        for found in sorted(pyenv.glob(f"{wanted}*/bin/python"), reverse=True):
            if _works(found):
                return str(found)
    wanted = version or " or ".join(SUPPORTED)
    sys.exit(
        f"bootstrap: no Python {wanted} with the venv module found on PATH or under pyenv; "
        "install one (on Debian also python3-venv) and try again"
    )


def _works(python: str | Path) -> bool:
    """True for an interpreter that starts and is new enough (a pyenv shim may do neither)."""
    if not Path(python).exists():
        return False
    code = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    return _run([str(python), "-c", code], check=False, quiet=True) == 0


def _run(command: list[str], *, check: bool = True, quiet: bool = False) -> int:
    environment = {**os.environ, "UV_SYSTEM_CERTS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    sink = subprocess.DEVNULL if quiet else None
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=sink,
        check=False,
    )
    if check and done.returncode != 0:
        sys.exit(f"bootstrap: failed: {' '.join(command)}")
    return done.returncode


def _say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


if __name__ == "__main__":
    main()
