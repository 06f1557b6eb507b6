import pytest
import rooms


@pytest.fixture
def problems(tmp_path):
    def check(inside, text):
        path = tmp_path / "lexigram" / "src" / "lexigram" / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return [problem.partition(f"{inside}:")[2] for problem in rooms.check(path)]

    return check


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import os\nx = os.environ['A']\n", "os.environ"),
        ("import os as o\nx = o.getenv('A')\n", "os.getenv"),
        ("from os import environ\nx = 1\n", "os.environ"),
    ],
)
def test_the_environment_is_read_only_by_config(problems, text, name):
    (found,) = problems("di/container.py", text)
    assert f"{name}: environment variables belong to lexigram/config/*" in found
    assert problems("config/env.py", text) == []


def test_signals_belong_to_one_file(problems):
    text = "import signal\nsignal.signal(2, print)\n"
    assert len(problems("app/application.py", text)) == 2
    assert problems("app/signals.py", text) == []


def test_loguru_is_set_up_in_one_file_even_when_imported_inside_a_function(problems):
    text = "def f():\n    from loguru import logger\n"
    (found,) = problems("cli/main.py", text)
    assert found.startswith("2: loguru.logger: loguru belong")
    assert problems("observability/logging.py", text) == []


def test_contracts_use_the_standard_library_only(problems):
    assert problems("contracts/a.py", "import json\nfrom lexigram.contracts.core import di\n") == []
    (found,) = problems("contracts/b.py", "from attrs import frozen\n")
    assert found == "1: attrs.frozen: contracts use the standard library only"


def test_what_only_the_type_checker_reads_is_free(problems):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from attrs import frozen\n"
    assert problems("contracts/a.py", text) == []


def test_a_local_name_that_looks_like_a_module_is_not_one(problems):
    assert problems("app/runner.py", "def f(signal):\n    return signal.name\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "X = 'SELECT id FROM jobs'\n",
        "X = '\\nWITH RECURSIVE n(i) AS (SELECT 1) SELECT i FROM n'\n",
        "def f(table):\n    return f'UPDATE {table} SET state = 1'\n",
        "def f():\n    run('INSERT OR IGNORE INTO jobs VALUES (1)')\n",
        "X = 'DELETE FROM jobs'\n",
        "X = 'EXPLAIN QUERY PLAN UPDATE jobs SET state = 1'\n",
    ],
)
def test_sql_text_belongs_to_stores(problems, text):
    (problem,) = problems("tasks/worker.py", text)
    assert problem.endswith(": SQL statements belong to a store")
    for inside in ("tasks/store_sql.py", "tasks/statements.py", "queue/backends/sql/driver.py"):
        assert problems(inside, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "X = 'select a color'\n",
        "X = 'the UPDATE of a row'\n",
        "def f():\n    'SELECT is explained here.'\n",
        "X = 'SELECTED'\n",
    ],
)
def test_prose_is_no_sql_text(problems, text):
    assert problems("tasks/worker.py", text) == []
