import sys
from importlib.metadata import Distribution

import pytest

from lexigram.cli import examination, installed
from lexigram.contracts.cli import DoctorStatus


def verdicts(outcome):
    return {row["check"]: row for row in outcome.data["checks"]}


def test_a_sound_set_up_is_ok_everywhere(lex, shop):
    shown = lex("doctor", shop)
    assert shown.code == 0
    names = [line.split()[0] for line in shown.out.splitlines()[1:]]
    assert names == [
        *("python", "packages", "namespace", "extras", "configuration", "application"),
        "contributors",
    ]
    found = verdicts(lex("doctor", shop, "--json"))
    assert {row["status"] for row in found.values()} == {"ok"}
    assert "graph valid" in found["application"]["message"]


def test_the_json_twin_tells_whether_all_is_well(lex):
    data = lex("doctor", "--json").data
    assert data["ok"] is True
    assert {"check", "status", "message", "hint", "details"} == set(data["checks"][0])


def test_an_application_is_not_needed(lex):
    assert "none is named here" in lex("doctor").out


def test_a_broken_application_is_an_error_and_the_rest_is_still_checked(lex, write):
    write("odd.py", "1 / 0\n")
    failed = lex("doctor", "odd:app", "--json")
    assert failed.code == 1
    found = verdicts(failed)
    assert found["application"]["status"] == "error"
    assert "importing odd failed" in found["application"]["message"]
    assert found["configuration"]["status"] == "ok"
    assert failed.data["ok"] is False


def test_a_wrong_configuration_is_an_error(lex, write):
    write("application.yaml", "debgu: true\n")
    failed = lex("doctor")
    assert failed.code == 1
    assert "did you mean: debug" in failed.out


def test_a_setting_unfit_for_production_is_an_error(lex, monkeypatch):
    monkeypatch.setenv("LEX_ENV", "production")
    monkeypatch.setenv("LEX_DEBUG", "true")
    assert verdicts(lex("doctor", "--json"))["configuration"]["status"] == "error"


def test_a_broken_contributor_is_an_error_that_names_it(lex, contribute):
    contribute("broken", "1 / 0\n")
    failed = lex("doctor", "--json")
    assert failed.code == 1
    row = verdicts(failed)["contributors"]
    assert row["status"] == "error"
    assert row["details"]["broken"] == [
        "broken (broken:Contributor): ZeroDivisionError: division by zero"
    ]


CONTRIBUTOR = """
    from lexigram.cli.contributors import BaseCliContributor
    from lexigram.contracts.cli import (
        CommandContribution, DoctorCheckContribution, DoctorResult, DoctorStatus
    )

    class Contributor(BaseCliContributor):
        contributor_id = "clinic"
        def get_commands(self):
            return [CommandContribution({command!r}, "", "clinic:{path}", "clinic")]
        def get_doctor_checks(self):
            return [DoctorCheckContribution("pulse", "clinic:pulse", "clinic")]

    def work(): ...
    def pulse(): {pulse}
"""


def clinic(contribute, command="work", path="work", pulse="return DoctorResult('ok', 'beats')"):
    contribute("clinic", CONTRIBUTOR.format(command=command, path=path, pulse=pulse))


def test_a_contributed_check_is_run(lex, contribute):
    clinic(contribute, pulse="return DoctorResult(DoctorStatus.WARNING, 'fast', 'sit down')")
    found = lex("doctor", "--json")
    assert found.code == 0
    row = verdicts(found)["pulse"]
    assert (row["status"], row["message"], row["hint"]) == ("warning", "fast", "sit down")


@pytest.mark.parametrize(
    ("pulse", "reason"),
    [
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("return 3", "returned 3, not a DoctorResult"),
        ("return DoctorResult('fine', 'x')", "'fine' is not a valid DoctorStatus"),
    ],
)
def test_a_contributed_check_that_misbehaves_is_an_error_not_the_end(
    lex, contribute, pulse, reason
):
    clinic(contribute, pulse=pulse)
    failed = lex("doctor", "--json")
    assert failed.code == 1
    assert verdicts(failed)["pulse"]["status"] == "error"
    assert reason in verdicts(failed)["pulse"]["message"]


def test_code_that_a_contributor_names_and_does_not_have_is_found(lex, contribute):
    clinic(contribute, path="missing")
    row = verdicts(lex("doctor", "--json"))["contributors"]
    assert row["status"] == "error"
    assert "clinic:missing cannot be loaded: AttributeError" in row["message"]


def test_a_name_taken_from_a_built_in_is_a_warning_with_winner_and_losers(lex, contribute):
    clinic(contribute, command="run", pulse="return DoctorResult(DoctorStatus.OK, 'beats')")
    row = verdicts(lex("doctor", "--json"))["contributors"]
    assert row["status"] == "warning"
    assert row["message"] == "command run: lexigram keeps it, clinic lost it"


def test_distributions_of_different_versions_are_an_error(folder, write, monkeypatch):
    write("site/lexigram_odd-0.9.dist-info/METADATA", "Name: lexigram-odd\nVersion: 0.9\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    verdict = examination.check_versions()
    assert verdict.status is DoctorStatus.ERROR
    assert "lexigram-odd 0.9" in verdict.message
    assert verdict.hint.startswith("pip install --upgrade lexigram ")


def test_a_package_that_hides_the_namespace_is_an_error(monkeypatch):
    import lexigram

    monkeypatch.setattr(lexigram, "__file__", "/somewhere/lexigram/__init__.py", raising=False)
    verdict = examination.check_namespace()
    assert verdict.status is DoctorStatus.ERROR
    assert "/somewhere/lexigram/__init__.py" in verdict.message


def test_extras_that_are_not_installed_are_named(folder, write, monkeypatch):
    write(
        "site/lexigram_odd-1.0.0.dist-info/METADATA",
        """\
        Name: lexigram-odd
        Version: 1.0.0
        Requires-Dist: attrs>=24
        Requires-Dist: no-such-client>=5; extra == 'redis'
        Requires-Dist: attrs; extra == "fast"
        Requires-Dist: no-such-thing; python_version > '3' and extra == "both"
        """,
    )
    monkeypatch.syspath_prepend(str(folder / "site"))
    odd = Distribution.from_name("lexigram-odd")
    assert installed.missing_extras(odd) == {"redis": ["no-such-client"], "both": ["no-such-thing"]}
    verdict = examination.check_extras()
    assert verdict.status is DoctorStatus.OK
    assert "lexigram-odd[redis]" in verdict.message


def test_an_old_interpreter_is_an_error(monkeypatch):
    monkeypatch.setattr(examination, "OLDEST_PYTHON", (99, 0))
    assert examination.check_python().status is DoctorStatus.ERROR
    monkeypatch.undo()
    assert sys.executable in examination.check_python().message
