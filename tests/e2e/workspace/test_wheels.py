"""The five wheels, installed beside each other as a user would, form one namespace."""

import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter

import pytest

MEMBERS = (
    *("lexigram_contracts", "lexigram", "lexigram_queue", "lexigram_workflow"),
    "lexigram_ai_workers",
)
# For run-time dependencies only: .pth files (our editable installs) are not read from here.
SITE_PACKAGES = sysconfig.get_path("purelib")


@pytest.fixture
def install(tmp_path, wheels):
    """Install members into a new environment; returns a function that runs code there."""

    def make(*members):
        python = tmp_path / "env" / "bin" / "python"
        run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
        uv = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps"]
        run(*uv, "--python", python, *(wheels[member] for member in members))

        def execute(code, *, path=""):
            return run(python, "-c", code, cwd=tmp_path, env={"PYTHONPATH": path}).strip()

        execute.python = python
        return execute

    return make


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_file_belongs_to_two_wheels_and_none_claims_the_namespace(wheels):
    files = Counter(
        name
        for wheel in wheels.values()
        for name in zipfile.ZipFile(wheel).namelist()
        if ".dist-info/" not in name
    )
    assert [name for name, count in files.items() if count > 1] == []
    assert {"lexigram/__init__.py", "lexigram/ai/__init__.py"} & set(files) == set()


def test_contracts_work_alone(install):
    execute = install("lexigram_contracts")
    assert (
        execute("from lexigram.contracts.core import HealthStatus as H; print(H.HEALTHY)")
        == "healthy"
    )
    assert execute("import importlib.util as u; print(u.find_spec('lexigram.app'))") == "None"


def test_an_extension_joins_the_core_without_the_other_extensions(install):
    execute = install("lexigram_contracts", "lexigram", "lexigram_queue")
    code = (
        "import anyio\n"
        "from lexigram.app import Application\n"
        "from lexigram.queue import QueueConfig, QueueModule\n"
        "async def main():\n"
        "    async with Application('shop', modules=[QueueModule.stub()]) as app:\n"
        "        print(len(app.container.get(QueueConfig).backends))\n"
        "anyio.run(main)\n"
    )
    assert execute(code, path=SITE_PACKAGES) == "1"
    assert execute("import importlib.util as u; print(u.find_spec('lexigram.workflow'))") == "None"


def test_all_five_are_found_by_their_entry_points(install):
    execute = install(*MEMBERS)
    code = (
        "from importlib.metadata import entry_points\n"
        "for point in sorted(entry_points(group='lexigram.modules')):\n"
        "    print(point.name, point.load().__name__)\n"
    )
    found = execute(code, path=SITE_PACKAGES).splitlines()
    assert {"ai_workers WorkersModule", "queue QueueModule", "workflow WorkflowModule"} <= set(
        found
    )


def test_a_users_type_checker_reads_the_types_of_the_wheels(install, tmp_path):
    execute = install("lexigram_contracts", "lexigram")
    (tmp_path / "user.py").write_text(
        "from lexigram.result import Ok\n"
        "from lexigram.contracts.core import HealthCheckResult\n"
        "number: int = HealthCheckResult(component='x').component\n"
        "reveal_type(Ok(1).unwrap())\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--python-executable"]
    done = subprocess.run(
        [*mypy, execute.python, "user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        'user.py:3: error: Incompatible types in assignment (expression has type "str"'
        in done.stdout
    )
    assert 'user.py:4: note: Revealed type is "int"' in done.stdout.replace("builtins.", "")
    assert "Found 1 error" in done.stdout
