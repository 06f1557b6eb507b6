import json
import sys

import pytest

from lexigram.app import AppStartupError
from lexigram.cli import CliError, ContributorError, ExitCode, Output
from lexigram.cli.failures import describe_failure, exit_code_of
from lexigram.config import ConfigProblem, ConfigSourceError
from lexigram.contracts.core import ConfigurationError, InfrastructureError
from lexigram.di._problems import Problem
from lexigram.di.errors import ContainerValidationError, ModuleError, ProviderError
from lexigram.di.errors import UnresolvableDependencyError as Missing

ROWS = [
    {"name": "a", "tags": ["x", "y"], "on": True, "extra": 1},
    {"name": "b", "tags": [], "on": False, "extra": None},
]
GRAPH = ContainerValidationError(
    [Problem(error=Missing, title="token: Missing", fix="bind it")], title="1 problem in shop"
)


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_table_shows_the_asked_columns_one_record_a_line(capsys):
    Output().table("things", ROWS, ("name", "tags", "on"))
    assert capsys.readouterr().out == "NAME  TAGS  ON\na     x, y  yes\nb           no\n"


def test_the_json_twin_of_a_table_holds_everything(capsys):
    Output(json=True).table("things", ROWS, ("name",), status="fine")
    assert json.loads(capsys.readouterr().out) == {"things": ROWS, "status": "fine"}


def test_an_empty_table_says_so_to_people_and_is_an_empty_list_to_programs(capsys):
    Output().table("things", [], ("name",))
    assert capsys.readouterr().out == "no things\n"
    Output(json=True).table("things", [], ("name",))
    assert json.loads(capsys.readouterr().out) == {"things": []}


def test_a_long_cell_stays_on_its_line_in_a_pipe(capsys):
    Output().table("things", [{"name": "word " * 60}], ("name",))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_terminal_gets_colours_unless_told_otherwise(capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("CI", raising=False)
    rows = [{"status": "unhealthy"}]
    Output().table("components", rows, ("status",))
    assert "\x1b[" in capsys.readouterr().out
    Output(color=False).table("components", rows, ("status",))
    assert capsys.readouterr().out == "STATUS\nunhealthy\n"


def test_square_brackets_in_a_cell_are_text(capsys):
    Output().table("things", [{"name": "[red]list[int][/red]"}], ("name",))
    assert "[red]list[int][/red]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CliError("no"), ExitCode.USAGE),
        (ContributorError("no"), ExitCode.FAILURE),
        (ConfigurationError("no"), ExitCode.USAGE),
        (ConfigSourceError([ConfigProblem(source="LEX_X", message="no")]), ExitCode.USAGE),
        (GRAPH, ExitCode.INVALID_GRAPH),
        (ModuleError("no"), ExitCode.INVALID_GRAPH),
        (AppStartupError("no"), ExitCode.INVALID_GRAPH),
        (ProviderError("no", provider="mail", phase="boot"), ExitCode.FAILURE),
        (KeyError("no"), ExitCode.FAILURE),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ExceptionGroup("one", [CliError("no")]), ExitCode.USAGE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_the_exit_code_tells_the_kind_of_error(error, code, capsys):
    assert exit_code_of(error) is code
    assert Output().fail(error) is code
    assert capsys.readouterr().err.startswith("error: ")
    Output(json=True).fail(error)
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    assert set(document["error"]) == {"code", "type", "message", "hint", "details", "causes"}


def test_an_error_shows_code_fix_and_causes_with_their_place():
    cause = raised(KeyError("host"))
    failure = describe_failure(raised(CliError("it broke", hint="mend it", cause=cause)))
    first, fix, why = failure.text.splitlines()
    assert first == "[LEX_ERR_CLI_001] it broke"
    assert fix == "→ Fix: mend it"
    assert why.startswith("caused by KeyError: 'host'  (")
    assert "test_output.py:" in why


def test_a_long_cause_that_is_quoted_is_not_shown_twice():
    cause = raised(CliError("two places\n\nhere: wrong\nthere: wrong", hint="mend them"))
    text = describe_failure(raised(CliError(f"no start: {cause}", cause=cause))).text
    assert text.count("there: wrong") == 1
    assert "caused by [LEX_ERR_CLI_001] two places  (" in text


def test_an_unexpected_error_names_its_type_and_place_and_the_debug_option():
    text = describe_failure(raised(ZeroDivisionError("by zero"))).text
    assert text.startswith("ZeroDivisionError: by zero  (")
    assert "--debug" in text


def test_all_members_of_a_group_are_shown():
    group = ExceptionGroup("both", [ValueError("first"), KeyError("second")])
    text = describe_failure(group).text
    assert "caused by ValueError: first" in text
    assert "caused by KeyError: 'second'" in text


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_in_errors_are_hidden(capsys, debug, as_json):
    error = InfrastructureError(
        "cannot reach postgres://joe:hunter2@db/shop",
        details={"url": "postgres://joe:hunter2@db/shop", "password": "hunter2"},
        cause=raised(OSError("login failed: password=hunter2")),
    )
    Output(json=as_json, debug=debug).fail(raised(error))
    printed = capsys.readouterr()
    assert "hunter2" not in printed.out + printed.err
    assert "***" in printed.out + printed.err


def test_parameter_names_of_an_invalid_graph_are_not_taken_for_secrets():
    failure = describe_failure(GRAPH)
    assert "token: Missing" in failure.text
    assert failure.data["details"]["problems"][0]["title"] == "token: Missing"


def test_debug_shows_the_traceback_on_standard_error(capsys):
    Output(debug=True).fail(raised(ValueError("no")))
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_notes_are_for_people_only(capsys):
    Output(json=True).note("hello")
    Output(quiet=True).note("hello")
    assert capsys.readouterr().out == ""
    Output().note("hello")
    assert capsys.readouterr().out == "hello\n"


HOSTILE = "a\x1b[31m\x9b2J\u202eb\r\nfake\t[red]c[/red]"


def print_all(output):
    output.table("things", [{"name": HOSTILE}], ("name",))
    output.facts({HOSTILE: HOSTILE}, {"name": HOSTILE})
    output.text(HOSTILE, {"name": HOSTILE})
    output.line(HOSTILE, {"name": HOSTILE})
    output.note(HOSTILE)
    output.warn(HOSTILE)
    output.terminal(stderr=True).print(HOSTILE)
    output.fail(raised(CliError(HOSTILE)))


@pytest.mark.parametrize(
    "output", [Output(), Output(json=True), Output(debug=True), Output(color=False)]
)
def test_data_steers_no_terminal_whatever_prints_it(output, capsys):
    print_all(output)
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert all(char == "\n" or char.isprintable() for char in text)
    assert r"a\x1b[31m\x9b2J\u202eb" in text or output.json
    assert "[red]c[/red]" in text


def test_only_texts_and_errors_have_lines_of_their_own(capsys):
    output = Output()
    output.table("things", [{"name": HOSTILE}], ("name",))
    output.facts({"name": HOSTILE}, {})
    output.line(HOSTILE, {})
    output.note(HOSTILE)
    output.warn(HOSTILE)
    printed = capsys.readouterr()
    assert not [line for line in (printed.out + printed.err).splitlines() if line[:4] == "fake"]
    output.text("one\ntwo", {})
    assert capsys.readouterr().out == "one\ntwo\n"


def test_json_gives_hostile_data_back_exactly(capsys):
    Output(json=True).text("", {"name": HOSTILE, HOSTILE: [HOSTILE]})
    assert json.loads(capsys.readouterr().out) == {"name": HOSTILE, HOSTILE: [HOSTILE]}


def test_the_text_of_a_progress_bar_is_text(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal gets no bar
    with Output(color=False).progress("waiting") as update:
        assert update is not None
        update(HOSTILE, completed=1, total=2)
    shown = capsys.readouterr().err
    assert r"a\x1b[31m\x9b2J\u202eb\r\nfake\t[red]c[/red]" in shown
    assert "1/2" in shown


def test_there_is_no_bar_for_programs_and_pipes():
    for output in (Output(json=True), Output(quiet=True), Output()):
        with output.progress("waiting") as update:
            assert update is None
