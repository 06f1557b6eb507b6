"""What the bootstrap does on a machine whose python3 is not one that we support."""

import os
import subprocess
import sys
from pathlib import Path

import bootstrap
import pytest

BOOTSTRAP = Path(bootstrap.__file__)
SUPPORTED = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    """The only folder on PATH, without any interpreter that was not put there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return folder


def add_interpreter(path, version=None):
    """This Python under another name; with a version, it reports that one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["#!/bin/sh", f'exec "{sys.executable}" "$@"']
    if version:
        reports = path.parent / f"reports-{path.name}"
        reports.mkdir()
        (reports / "sitecustomize.py").write_text(f"import sys; sys.version_info = {version}")
        lines.insert(1, f'export PYTHONPATH="{reports}"')
    path.write_text("\n".join(lines))
    path.chmod(0o755)


def test_python3_is_taken_where_it_is_supported(bin_folder):
    add_interpreter(bin_folder / "python3")
    assert bootstrap.find_interpreter("") == str(bin_folder / "python3")


@pytest.mark.parametrize("version", [(3, 14, 0), (3, 10, 9)], ids=["newer", "older"])
def test_another_interpreter_is_taken_where_python3_is_not_supported(bin_folder, version):
    add_interpreter(bin_folder / "python3", version)
    add_interpreter(bin_folder / f"python{SUPPORTED}")
    assert bootstrap.find_interpreter("") == str(bin_folder / f"python{SUPPORTED}")


def test_an_interpreter_of_pyenv_is_taken_where_none_on_the_path_is_supported(bin_folder, tmp_path):
    add_interpreter(bin_folder / "python3", (3, 14, 0))
    expected = tmp_path / "pyenv" / "versions" / f"{SUPPORTED}.1" / "bin" / "python"
    add_interpreter(expected)
    assert bootstrap.find_interpreter("") == str(expected)


def test_an_interpreter_of_another_version_than_its_name_is_not_taken(bin_folder):
    add_interpreter(bin_folder / f"python{SUPPORTED}", (3, 14, 0))
    assert bootstrap.find_interpreter(SUPPORTED) is None


@pytest.mark.parametrize("uv", ["on the path", "absent"])
def test_the_message_names_the_versions_where_none_can_be_downloaded(bin_folder, tmp_path, uv):
    add_interpreter(bin_folder / "python3", (3, 14, 0))
    if uv == "on the path":
        (bin_folder / "uv").symlink_to(Path(sys.executable).with_name("uv"))
    done = run_bootstrap(bin_folder, tmp_path / "new")
    assert done.returncode == 1
    assert (
        "no Python 3.11, 3.12 or 3.13 with the venv module on PATH or under pyenv, "
        "and uv could not download one (python3 is 3.14.0)"
    ) in done.stderr
    assert "Fix: install one of them" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_version_that_is_not_supported_is_refused_at_once(bin_folder, tmp_path):
    add_interpreter(bin_folder / "python3")
    done = run_bootstrap(bin_folder, tmp_path / "new", "--python", "3.14")
    assert done.stderr == ("bootstrap: Python 3.14 is not supported. Fix: use 3.11, 3.12 or 3.13\n")
    assert not (tmp_path / "new").exists()


def run_bootstrap(bin_folder, venv, *arguments):
    """As make does, with every index and download host at a port where nothing listens."""
    nowhere = "http://127.0.0.1:9"
    offline = {
        "PIP_INDEX_URL": nowhere,
        "PIP_RETRIES": "0",
        "UV_PYTHON_INSTALL_MIRROR": nowhere,
        "UV_PYTHON_INSTALL_DIR": str(venv.parent / "pythons"),
        "UV_HTTP_RETRIES": "0",
    }
    return subprocess.run(
        [bin_folder / "python3", BOOTSTRAP, venv, *arguments],
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        check=False,
    )
