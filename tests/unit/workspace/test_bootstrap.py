"""What the bootstrap does on a machine whose python3 is not one that we support."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import bootstrap
import pytest

BOOTSTRAP = Path(bootstrap.__file__)
SUPPORTED = ".".join(map(str, sys.version_info[:2]))
OTHER = next(version for version in bootstrap.SUPPORTED if version != SUPPORTED)


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    """The only folder on PATH, without any interpreter that was not put there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return folder


def add_interpreter(path, version=None, without=None):
    """This Python under another name; it reports the version, and has no module ``without``."""
    reports = path.parent / f"reports-{path.name}"
    reports.mkdir(parents=True)
    lines = ["import sys"]
    lines += [f"sys.version_info = {version}"] if version else []
    lines += [f"sys.modules[{without!r}] = None"] if without else []
    (reports / "sitecustomize.py").write_text("\n".join(lines))
    add_program(path, f'PYTHONPATH="{reports}" exec "{sys.executable}" "$@"')


def add_program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
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


@pytest.mark.parametrize("module", bootstrap.MODULES)
def test_an_interpreter_that_lacks_a_module_we_need_is_not_taken(bin_folder, module):
    add_interpreter(bin_folder / "python3", without=module)
    assert bootstrap.find_interpreter("") is None


@pytest.mark.parametrize("uv", ["on the path", "absent"])
def test_the_message_names_the_versions_where_none_can_be_downloaded(bin_folder, tmp_path, uv):
    add_interpreter(bin_folder / "python3", (3, 14, 0))
    if uv == "on the path":
        (bin_folder / "uv").symlink_to(Path(sys.executable).with_name("uv"))
    done = run_bootstrap(bin_folder, tmp_path / "new")
    assert done.returncode == 1
    assert (
        "bootstrap: no Python 3.11, 3.12 or 3.13 with the modules venv, ensurepip, sqlite3, ssl "
        "on PATH or under pyenv, and uv could not download one (python3 is 3.14.0)\n"
        "Fix: install Python 3.13 (on Debian and Ubuntu also python3.13-venv) and try again\n"
    ) in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def test_the_message_names_the_version_that_was_asked_for(bin_folder, tmp_path):
    add_interpreter(bin_folder / "python3")
    done = run_bootstrap(bin_folder, tmp_path / "new", "--python", OTHER)
    assert f"bootstrap: no Python {OTHER} with the modules" in done.stderr
    assert f"Fix: install Python {OTHER} (" in done.stderr


def test_uv_is_asked_for_a_managed_python_where_none_is_supported(bin_folder, tmp_path):
    add_interpreter(bin_folder / "python3", (3, 14, 0))
    add_program(bin_folder / "uv", f'echo "$@"; "{sys.executable}" -m venv --without-pip "$8"')
    done = run_bootstrap(bin_folder, tmp_path / "new")
    newest = bootstrap.SUPPORTED[0]
    command = f"venv --quiet --seed --clear --managed-python --python {newest} {tmp_path}/new"
    assert command in done.stdout.splitlines()
    assert f"downloading Python {newest} with uv" in done.stdout


@pytest.mark.parametrize("uv", ["absent", "a shim of nothing"])
def test_uv_is_fetched_where_none_on_the_path_works(bin_folder, tmp_path, uv):
    add_interpreter(bin_folder / "python3")
    if uv != "absent":
        add_program(bin_folder / "uv", "exit 127")
    add_wheel_of_uv(tmp_path, "sys.exit(f'asked for {sys.argv[1:]}')")
    done = run_bootstrap(
        bin_folder, tmp_path / "new", "--python", OTHER, PIP_FIND_LINKS=str(tmp_path)
    )
    assert "asked for ['venv', '--quiet', '--seed'" in done.stderr
    assert "uv could not download one" in done.stderr


def add_wheel_of_uv(folder, code):
    """A wheel of the version in constraints.txt; `uv` and `python -m uv` run the code."""
    constraints = (bootstrap.ROOT / "constraints.txt").read_text()
    version = re.search(r"^uv==(\S+)", constraints, re.MULTILINE)[1]
    info = f"uv-{version}.dist-info"
    # The version is asked for before anything else, and has to succeed.
    main = f"import sys\ndef main():\n    if '--version' not in sys.argv:\n        {code}\n"
    files = {
        "uv/__init__.py": "",
        "uv/__main__.py": f"{main}if __name__ == '__main__':\n    main()\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nuv = uv.__main__:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"uv-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def test_an_environment_of_another_version_than_its_name_is_not_used(bin_folder, tmp_path):
    add_interpreter(bin_folder / "python3")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "new"], check=True)
    done = run_bootstrap(bin_folder, tmp_path / "new", "--python", OTHER)
    assert f"bootstrap: no Python {OTHER} with the modules" in done.stderr


def test_an_environment_that_cannot_be_made_is_explained(bin_folder, tmp_path):
    add_interpreter(bin_folder / "python3")
    (tmp_path / "file").touch()
    done = run_bootstrap(bin_folder, tmp_path / "file" / "new")
    assert done.returncode == 1
    assert (
        f"bootstrap: {bin_folder}/python3 could not make {tmp_path}/file/new\nFix: "
    ) in done.stderr


def test_a_half_made_environment_is_made_again_and_a_failed_install_is_explained(
    bin_folder, tmp_path
):
    add_interpreter(bin_folder / "python3")
    half_made = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "new"]
    subprocess.run(half_made, check=True)
    done = run_bootstrap(bin_folder, tmp_path / "new")
    assert f"making new with {bin_folder}/python3" in done.stdout
    assert (tmp_path / "new" / "bin" / "pip").exists()
    assert done.returncode == 1
    assert f"bootstrap: pip could not install into {tmp_path}/new/bin/python\nFix: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_a_version_that_is_not_supported_is_refused_at_once(bin_folder, tmp_path, exists):
    add_interpreter(bin_folder / "python3")
    if exists:
        add_interpreter(tmp_path / "new" / "bin" / "python", (3, 14, 0))
    done = run_bootstrap(bin_folder, tmp_path / "new", "--python", "3.14")
    assert done.stderr == "bootstrap: Python 3.14 is not supported. Fix: use 3.11, 3.12 or 3.13\n"
    assert done.stdout == ""


def test_make_says_what_to_install_where_there_is_no_python3(bin_folder, tmp_path):
    make = shutil.which("make", path=os.defpath)
    done = subprocess.run(
        [make, f"{tmp_path}/new/.ready", f"VENV={tmp_path}/new"],
        cwd=bootstrap.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    *most, last = sorted(bootstrap.SUPPORTED)
    assert done.stderr.startswith(
        f"make: no python3 on PATH\nFix: install Python {', '.join(most)} or {last} and try again\n"
    )
    assert done.returncode == 2


def run_bootstrap(bin_folder, venv, *arguments, **variables):
    """As make does, without a package index, and with downloads from where nothing listens."""
    offline = {
        "PIP_NO_INDEX": "1",
        "UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9",
        "UV_PYTHON_INSTALL_DIR": str(venv.parent / "pythons"),
        "UV_HTTP_RETRIES": "0",
    }
    return subprocess.run(
        [bin_folder / "python3", BOOTSTRAP, venv, *arguments],
        env={**os.environ, **offline, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
