"""Whatever contributed code does, the command line reports it and goes on."""

import pytest
from tests.failures import FAILURES, RAISING_NOW

from lexigram.app import Application, AppState
from lexigram.cli import Output
from lexigram.cli.checks import check_health
from lexigram.cli.console import talk
from lexigram.cli.contributors import Contributors
from lexigram.cli.examination import examine
from lexigram.cli.session import Session
from lexigram.contracts.cli import (
    DoctorCheckContribution,
    DoctorStatus,
    HealthCheckContribution,
    ShellContextContribution,
)
from lexigram.contracts.core.health import HealthStatus

NOW = [way.__name__ for way in RAISING_NOW]
LATER = [*FAILURES, "never_return", "cancel_its_own_task"]

CONTRIBUTOR = """
    from lexigram.cli.contributors import BaseCliContributor
    from lexigram.contracts.cli import CommandContribution, GeneratorDefinition
    from tests import failures

    class Contributor(BaseCliContributor):
        contributor_id = "tools"

        def get_commands(self):
            if "{place}" == "contributor":
                failures.{way}()
            return [CommandContribution("tools", "Does things.", "tools_impl:create", "tools")]

        def get_generators(self):
            return [
                GeneratorDefinition("thing", "Thing", "A thing", "tools", "tools_impl:Generator")
            ]
"""
PARTS = """
    import typer
    from tests import failures

    if "{place}" == "module":
        failures.{way}()

    def create():
        if "{place}" == "command":
            failures.{way}()
        app = typer.Typer()
        app.command()(lambda: None)
        return app

    class Generator:
        def generate(self, name):
            if "{place}" == "generator":
                failures.{way}()
            return {{}}
"""
OUTSIDE = """
    import time
    from lexigram.contracts.cli import DoctorResult, DoctorStatus
    from lexigram.contracts.core.health import HealthCheckResult
    from tests import failures

    async def fine():
        return HealthCheckResult("fine")

    def doctor_fine():
        return DoctorResult(DoctorStatus.OK, "fine")

    def doctor_hang():
        time.sleep(3600)

    def make_fine(container):
        return "fine"
"""


@pytest.fixture
def outside(write, folder, monkeypatch):
    async_ways = {way: f"FAILURES['{way}']" for way in FAILURES}
    async_ways |= {way: way for way in LATER if way not in FAILURES}
    parts = [
        f"\n    async def {way}(*_):\n        await failures.{function}()\n"
        for way, function in async_ways.items()
    ]
    parts += [f"\n    def now_{way}(*_):\n        failures.{way}()\n" for way in NOW]
    write("outside.py", "".join([OUTSIDE, *parts]))
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize("place", ["contributor", "module", "command", "generator"])
@pytest.mark.parametrize("way", NOW)
def test_a_contributor_that_fails_in_any_way_is_reported_and_other_commands_work(
    lex, contribute, write, way, place
):
    contribute("tools", CONTRIBUTOR.format(way=way, place=place))
    write("site/tools_impl.py", PARTS.format(way=way, place=place))
    used = {
        "contributor": ("--help",),
        "module": ("tools",),
        "command": ("tools",),
        "generator": ("generate", "thing", "x"),
    }[place]
    shown = lex(*used)
    assert "tools" in shown.err
    assert (shown.code == 0) is (place == "contributor")
    assert lex("version").code == 0


@pytest.mark.anyio
@pytest.mark.parametrize("way", LATER)
async def test_a_contributed_health_check_that_fails_in_any_way_is_unhealthy_beside_others(
    outside, way
):
    checks = {
        name: HealthCheckContribution(name, f"outside:{path}", "queue", timeout=0.2)
        for name, path in (("bad", way), ("good", "fine"))
    }
    report = await check_health(Application("shop"), Contributors(health_checks=checks))
    found = {item["component"]: item for item in report.components}
    assert found["bad"]["status"] == HealthStatus.UNHEALTHY.value
    assert found["bad"]["error"]
    assert found["fine"]["status"] == HealthStatus.HEALTHY.value


@pytest.mark.parametrize("way", [*(f"now_{way}" for way in NOW), "doctor_hang"])
def test_a_contributed_doctor_check_that_fails_in_any_way_is_an_error_beside_others(outside, way):
    checks = {
        name: DoctorCheckContribution(name, f"outside:{path}", "queue", timeout=2.0)
        for name, path in (("bad", way), ("good", "doctor_fine"))
    }
    session = Session(Output())
    session.contributors = Contributors(doctor_checks=checks)
    verdicts = dict(examine(session))
    assert verdicts["bad"].status is DoctorStatus.ERROR
    assert verdicts["good"].status is DoctorStatus.OK


@pytest.mark.parametrize("way", [*FAILURES, "never_return", *(f"now_{way}" for way in NOW)])
def test_a_name_of_the_shell_whose_factory_fails_in_any_way_is_left_out(
    outside, way, monkeypatch, capsys
):
    names = {
        name: ShellContextContribution(name, "", f"outside:{path}", "queue", timeout=0.2)
        for name, path in (("bad", way), ("good", "make_fine"))
    }
    lines = iter(["good", "'bad' in globals()"])

    def read(prompt=""):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    app = Application("shop")
    talk(app, Contributors(shell_context=names), Output())
    printed = capsys.readouterr()
    assert "bad of queue is left out" in printed.err
    assert printed.out == "'fine'\nFalse\n"
    assert app.state is AppState.STOPPED


@pytest.mark.parametrize("way", [way for way in NOW if way != "raise_system_exit"])
def test_what_is_typed_may_raise_anything_and_the_prompt_goes_on(monkeypatch, capsys, way):
    lines = iter(
        ["from tests import failures", f"failures.{way}()", "raise KeyboardInterrupt", "1"]
    )

    def read(prompt=""):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    talk(Application("shop"), Contributors(), Output())
    printed = capsys.readouterr()
    assert printed.out == "1\n"
    assert "CallAbortedError" not in printed.err


@pytest.mark.parametrize("way", NOW)
def test_an_application_module_that_raises_anything_is_named(lex, write, way):
    write("shop.py", f"from tests import failures\nfailures.{way}()\n")
    shown = lex("inspect", "modules", "shop:app")
    assert shown.code == 2
    assert "importing shop failed" in shown.err
