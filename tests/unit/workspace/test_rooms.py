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
