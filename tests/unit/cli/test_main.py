import re
import subprocess
import sys
from pathlib import Path

import pytest

from lexigram.cli import ExitCode
from lexigram.cli.built_in import COMMANDS

SUBCOMMANDS = [
    *((name,) for name in COMMANDS),
    *(("inspect", name) for name in ("modules", "providers", "container", "graph")),
    *(("inspect", name) for name in ("config", "health")),
    *(("config", name) for name in ("show", "validate", "env")),
]


def test_help_lists_every_built_in_command(lex):
    shown = lex("--help")
    assert shown.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in shown.out


def test_no_arguments_show_the_help(lex):
    assert lex().out == lex("--help").out


@pytest.mark.parametrize("command", SUBCOMMANDS, ids=" ".join)
def test_every_command_explains_itself_and_takes_the_global_options(lex, command):
    shown = lex(*command, "--help")
    assert shown.code == 0
    for option in ("--json", "-q, --quiet", "--no-color", "--debug", "--help"):
        assert option in shown.out
    assert "completion" not in shown.out


def test_help_loads_neither_rich_nor_the_container_nor_yaml(tmp_path):
    heavy = ("rich", "dependency_injector", "cattrs", "yaml", "loguru", "anyio", "asyncio")
    code = (
        "import sys; from lexigram.cli.main import main; main(['--help']); "
        f"print(*(m for m in {heavy!r} if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stderr.split() == []


def test_the_json_option_is_taken_before_and_after_the_command(lex):
    assert lex("--json", "version").data == lex("version", "--json").data


def test_version_shows_every_distribution(lex):
    assert "lexigram 1.0.0\n" in lex("version").out
    data = lex("version", "--json").data
    assert data["distributions"]["lexigram-contracts"] == "1.0.0"
    assert data["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(lex):
    failed = lex("versoin")
    assert failed.code == 2
    assert "Did you mean 'version'?" in failed.err
    assert failed.out == ""


def test_a_mistake_in_the_arguments_is_json_too(lex):
    failed = lex("version", "--nonsense", "--json")
    assert failed.code == 2
    assert failed.data["exit_code"] == 2
    assert failed.data["error"]["message"] == "No such option: --nonsense"


def test_a_group_without_a_command_is_a_usage_error(lex):
    failed = lex("inspect")
    assert failed.code == 2
    assert "Missing command" in failed.err


def test_quiet_leaves_notes_out_and_keeps_results(lex):
    assert lex("config", "validate").out == "the configuration is valid for development\n"
    assert lex("config", "validate", "-q").out == ""
    assert "lexigram" in lex("-q", "version").out


def test_the_documented_exit_codes_are_those_there_are():
    page = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
    section = page.read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert documented == {int(code) for code in ExitCode}


def test_every_command_is_documented():
    page = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
    text = page.read_text(encoding="utf-8")
    missing = [
        " ".join(command) for command in SUBCOMMANDS if f"| `{' '.join(command)}" not in text
    ]
    assert missing == []
