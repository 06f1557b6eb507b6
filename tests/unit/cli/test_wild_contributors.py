"""Whatever code of contributors raises: it is reported, and others are served all the same."""

import io

import pytest

from lexigram.cli.contributors import Contributors

RAISED = {
    "exit": "SystemExit(0)",
    "cancelled": "asyncio.CancelledError()",
    "generator": "GeneratorExit()",
    "base": "Unusual('wild')",
    "group": "BaseExceptionGroup('several', [SystemExit(0), ValueError('wild')])",
    "mute": "Mute()",
}
WILD = """
import asyncio
import typer
from lexigram.cli.contributors import BaseCliContributor
from lexigram.contracts.cli import *

class Unusual(BaseException): ...

class Mute(Exception):
    def __str__(self):
        raise SystemExit(0)

def wild(*_, **__):
    raise {raised}

async def later(*_):
    wild()

class Generator:
    generate = wild

def commands():
    app = typer.Typer()
    app.command("now")(lambda: wild())
    app.command("nothing")(lambda: None)
    return app
"""
LOADING = {
    "module": "wild()",
    "constructor": "class Contributor(BaseCliContributor):\n    __init__ = wild",
    "id": "class Contributor(BaseCliContributor):\n    contributor_id = property(wild)",
    **{
        method: f"class Contributor(BaseCliContributor):\n    {method} = wild"
        for method in (
            "get_commands",
            "get_generators",
            "get_health_checks",
            "get_doctor_checks",
            "get_shell_context",
        )
    },
    "sequence": """
class Contributor(BaseCliContributor):
    def get_commands(self):
        yield CommandContribution("early", "Early.", "wild:commands", "wild")
        wild()
""",
}
USED = """
class Contributor(BaseCliContributor):
    contributor_id = "wild"

    def get_commands(self):
        return [
            CommandContribution("wild", "Wild.", "wild:commands", "wild"),
            CommandContribution("unmade", "Wild.", "wild:wild", "wild"),
        ]

    def get_generators(self):
        return [GeneratorDefinition("g", "G", "Wild.", "wild", "wild:Generator")]

    def get_health_checks(self):
        return [
            HealthCheckContribution(name, f"wild:{name}", "wild") for name in ("wild", "later")
        ]

    def get_doctor_checks(self):
        return [
            DoctorCheckContribution(name, f"wild:{name}", "wild") for name in ("wild", "later")
        ]

    def get_shell_context(self):
        return [
            ShellContextContribution(name, "Wild.", f"wild:{name}", "wild")
            for name in ("wild", "later")
        ]
"""
GOOD = """
from lexigram.cli.contributors import BaseCliContributor
from lexigram.contracts.cli import *
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus

class Contributor(BaseCliContributor):
    contributor_id = "zgood"

    def get_health_checks(self):
        return [HealthCheckContribution("zgood", "zgood:health", "zgood")]

    def get_doctor_checks(self):
        return [DoctorCheckContribution("zgood", "zgood:doctor", "zgood")]

    def get_shell_context(self):
        return [ShellContextContribution("zgood", "Good.", "zgood:name", "zgood")]

async def health():
    return HealthCheckResult(component="zgood", status=HealthStatus.HEALTHY)

def doctor():
    return DoctorResult(DoctorStatus.OK, "zgood is fine")

def name(container):
    return "zgood is here"
"""


@pytest.fixture(params=RAISED.values(), ids=RAISED)
def install(request, contribute):
    """Install a wild contributor and a good one, which comes after it."""

    def install(contributor):
        contribute("wild", WILD.format(raised=request.param) + contributor)
        contribute("zgood", GOOD)

    return install


@pytest.mark.parametrize("contributor", LOADING.values(), ids=LOADING)
def test_a_contributor_that_raises_anything_is_left_out_and_others_are_not(install, contributor):
    install(contributor)
    found = Contributors.discover()
    assert found.names == ("zgood",)
    assert [broken.contributor for broken in found.broken] == ["wild"]
    assert found.commands == {}


def test_contributed_code_that_raises_anything_is_reported_and_ends_nothing(
    install, lex, shop, monkeypatch
):
    install(USED)
    for command in (("wild", "now"), ("unmade", "now"), ("generate", "g", "name")):
        ended = failure_of(lex, *command)
        assert ended is None or ended.startswith("error: "), command
    health = lex("inspect", "health", "shop:create", "--json").data["components"]
    status = {one["component"]: one["status"] for one in health}
    assert (status["wild"], status["later"], status["zgood"]) == (
        *("unhealthy", "unhealthy"),
        "healthy",
    )
    checks = {
        one["check"]: one["status"] for one in lex("doctor", "shop:create", "--json").data["checks"]
    }
    assert (checks["wild"], checks["later"], checks["zgood"]) == ("error", "error", "ok")
    monkeypatch.setattr("sys.stdin", io.StringIO("zgood\n"))
    talked = lex("shell", "shop:create")
    assert "zgood is here" in talked.out
    assert "warning: wild of wild is left out" in talked.err
    assert "warning: later of wild is left out" in talked.err


def failure_of(lex, *command):
    """What was printed; None where the command ended the process itself, which it may."""
    try:
        ended = lex(*command)
    except SystemExit:
        assert command == ("wild", "now")
        return None
    assert ended.code != 0
    return ended.err
