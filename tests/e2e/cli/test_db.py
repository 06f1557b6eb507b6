"""``lexigram db`` in processes of its own, with a package that is really installed and removed."""

import asyncio
import json
import os
import sys
from pathlib import Path
from textwrap import dedent

import asyncpg
import pytest
from tests import processes
from tests.names import unique_identifier

SCRIPTS = Path(sys.executable).parent
SECONDS = 120  # a guard against hanging, not a promise

pytestmark = pytest.mark.timeout(900)  # fifteen processes on a busy machine

FILES = {
    "tea_shop-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tea-shop\nVersion: 1.0\n",
    "tea_shop-1.0.dist-info/entry_points.txt": """
        [lexigram.migrations]
        tea-shop = tea_shop.migrations:MIGRATIONS
    """,
    "tea_shop/migrations/__init__.py": """
        from lexigram.sql.migrate import Migrations

        MIGRATIONS = Migrations(distribution="tea-shop", versions="tea_shop.migrations.versions")
    """,
    "tea_shop/migrations/versions/0001_orders.py": """
        \"\"\"Orders.\"\"\"
        import sqlalchemy as sa
        from alembic import op

        def upgrade() -> None:
            op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))

        def downgrade() -> None:
            op.drop_table("orders")
    """,
}


@pytest.fixture
def package(tmp_path):
    """A folder that makes tea-shop installed for who has it on the path."""
    for name, text in FILES.items():
        file = tmp_path / "installed" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip(), encoding="utf-8")
    return tmp_path / "installed"


@pytest.fixture
def empty_postgres(services):
    name = unique_identifier()
    server = f"postgresql://postgres@{services['postgresql'].address}"

    async def do(statement):
        admin = await asyncpg.connect(f"{server}/test")
        await admin.execute(statement)
        await admin.close()

    asyncio.run(do(f"CREATE DATABASE {name}"))
    yield f"{server}/{name}"
    asyncio.run(do(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return request.getfixturevalue("empty_postgres")


@pytest.fixture
def db(tmp_path, url):
    """``db("upgrade")`` runs the real script; ``path`` holds what is installed besides."""

    def run(*arguments, stdin="", path=""):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEX_", "PYTEST", "COV"))}
        return processes.run(
            [SCRIPTS / "lexigram", "db", *arguments],
            cwd=tmp_path,
            env={**kept, "PYTHONPATH": str(path), "LEX_SQL__URL": url},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


def states(done):
    return {
        item["distribution"]: item["state"] for item in json.loads(done.stdout)["distributions"]
    }


def test_every_verb_from_the_first_look_to_the_removal_of_a_package(db, package):
    first = db("status", "--json", path=package)
    assert first.returncode == 4
    assert states(first)["tea-shop"] == "outdated"

    listed = db("history", path=package).stdout.splitlines()
    assert listed[-1].split() == ["tea-shop", "0001", "Orders."]

    script = db("sql", "--only", "tea-shop", path=package)
    assert "CREATE TABLE orders" in script.stdout
    assert script.stdout.rstrip().endswith("COMMIT;")
    assert states(db("status", "--json", path=package))["tea-shop"] == "outdated"

    upgraded = db("upgrade", path=package)
    assert (upgraded.returncode, upgraded.stderr) == (0, "")
    assert "tea-shop 0001  Orders." in upgraded.stdout
    assert upgraded.stdout.splitlines()[-1].startswith("migrations run: ")
    assert db("upgrade", path=package).stdout == "the database is up to date\n"
    assert db("status", path=package).returncode == 0

    refused = db("downgrade", "base", "--only", "tea-shop", stdin="n\n", path=package)
    assert refused.returncode == 1
    assert "loses its rows" in refused.stderr
    nobody = db("downgrade", "base", "--only", "tea-shop", stdin="", path=package)
    assert nobody.returncode == 1
    assert states(db("status", "--json", path=package))["tea-shop"] == "up to date"
    undone = db("downgrade", "base", "--only", "tea-shop", stdin="y\n", path=package)
    assert undone.returncode == 0
    assert "undone tea-shop 0001  Orders." in undone.stdout
    assert db("upgrade", "--only", "tea-shop", "--json", path=package).returncode == 0

    # The package is uninstalled: its tables stay, and nobody else is disturbed.
    removed = db("status", "--json")
    assert removed.returncode == 0
    assert states(removed)["tea-shop"] == "not installed"
    assert states(removed)["lexigram"] == "up to date"
    assert db("upgrade").stdout == "the database is up to date\n"


def test_a_broken_package_is_named(db, package):
    (package / "tea_shop" / "migrations" / "__init__.py").write_text("import no_such_thing\n")
    done = db("upgrade", path=package)
    assert done.returncode == 2
    assert "[LEX_ERR_DB_121] the migrations of tea-shop (tea_shop.migrations:" in done.stderr
    assert "repair or uninstall tea-shop" in done.stderr
    assert "Traceback" not in done.stderr
