"""The core without its extras: it works, and what needs an extra names the command to install it."""

import subprocess
import sys
from textwrap import dedent

import pytest

# Stands for an environment where these were not installed.
WITHOUT = dedent("""
    import sys

    OF_EXTRAS = {"sqlalchemy", "alembic", "asyncpg", "opendal", "redis", "fastapi", "starlette"}
    OF_EXTRAS |= {"pydantic", "uvicorn", "opentelemetry", "prometheus_client"}

    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in OF_EXTRAS:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Missing())
""")


def run(code, folder):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + dedent(code)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_application_with_cache_jobs_and_resilience_needs_no_extra(tmp_path):
    done = run(
        """
        import anyio
        from lexigram.app import Application
        from lexigram.cache import CacheModule
        from lexigram.resilience import ResilienceModule
        from lexigram.tasks import TasksModule

        async def main():
            modules = [CacheModule, ResilienceModule, TasksModule]
            async with Application("shop", modules=modules) as app:
                print((await app.health_check()).status.value)

        anyio.run(main)
        """,
        tmp_path,
    )
    assert done.stdout.split() == ["healthy"], done.stderr


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("sql.SqlModule", 'pip install "lexigram[sql]"'),
        ("schedule.ScheduleModule", 'pip install "lexigram[sql]"'),
        ("blobs.BlobModule", 'pip install "lexigram[blobs]"'),
    ],
)
def test_a_module_whose_extra_is_missing_names_the_command_to_install_it(
    module, expected, tmp_path
):
    package, name = module.split(".")
    done = run(
        f"""
        import anyio
        from lexigram.app import Application
        from lexigram.{package} import {name}

        async def main():
            async with Application("shop", modules=[{name}]):
                pass

        anyio.run(main)
        """,
        tmp_path,
    )
    assert done.returncode == 1
    assert expected in done.stderr


def test_every_public_name_is_there_or_names_the_command_to_install_it(tmp_path):
    done = run(
        """
        import importlib, pkgutil
        import lexigram

        packages = ["lexigram.queue", "lexigram.workflow", "lexigram.ai", "lexigram.testing"]
        for found in pkgutil.walk_packages(lexigram.__path__, "lexigram.", onerror=print):
            if not found.ispkg or found.name.startswith(tuple(packages)):
                continue
            package = importlib.import_module(found.name)
            for name in getattr(package, "__all__", ()):
                try:
                    getattr(package, name)
                except Exception as error:
                    if "pip install" not in str(error):
                        print(found.name, name, error)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("command", [["--help"], ["doctor"], ["new", "shop"]])
def test_a_command_that_needs_no_database_works_without_the_extras(command, tmp_path):
    done = run(
        f"from lexigram.cli.main import main; sys.exit(main({command!r}))",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["status", "upgrade", "history", "sql"])
def test_a_command_on_a_database_names_the_extra_that_is_missing(command, tmp_path):
    done = run(f"from lexigram.cli.main import main; sys.exit(main(['db', {command!r}]))", tmp_path)
    assert done.returncode != 0
    assert "pip install" in done.stderr
    assert "lexigram[sql]" in done.stderr
