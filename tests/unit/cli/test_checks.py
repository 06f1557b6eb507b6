import pytest

from lexigram.app import Application
from lexigram.cli.checks import check_health
from lexigram.cli.contributors import Contributors
from lexigram.contracts.cli import HealthCheckContribution
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.di import Provider

pytestmark = pytest.mark.anyio

CHECKS = """
    import anyio
    from lexigram.contracts.core.health import HealthCheckResult, HealthStatus

    async def fine(): return HealthCheckResult("outside")
    async def bad(): return HealthCheckResult("outside", HealthStatus.UNHEALTHY, "down")
    async def broken(): raise KeyError("password=hunter2")
    async def endless(): await anyio.sleep_forever()
    async def wrong(): return True
"""


def contributed(check, **facts):
    item = HealthCheckContribution("broker", f"outside:{check}", "queue", **facts)
    return Contributors(health_checks={"broker": item})


@pytest.fixture(autouse=True)
def outside(write, folder, monkeypatch):
    write("outside.py", CHECKS)
    monkeypatch.syspath_prepend(str(folder))


async def test_providers_and_contributed_checks_are_asked():
    report = await check_health(
        Application("shop", providers=[Provider(name="mail")]), contributed("fine")
    )
    assert report.status is HealthStatus.HEALTHY
    assert [(item["component"], item["contributor"]) for item in report.components] == [
        ("mail", None),
        ("outside", "queue"),
    ]


@pytest.mark.parametrize(
    ("check", "error"),
    [
        ("bad", None),
        ("broken", "KeyError: 'password=***"),
        ("endless", "no answer within 0.01 s"),
        ("wrong", "TypeError: outside:wrong returned True, not a HealthCheckResult"),
        (
            "missing",
            "[LEX_ERR_CLI_003] outside:missing, named by the contributor queue, cannot be loaded",
        ),
    ],
)
async def test_a_contributed_check_that_fails_in_any_way_is_unhealthy(check, error):
    report = await check_health(
        Application("shop"), contributed(check, timeout=0.01, critical=True)
    )
    assert report.status is HealthStatus.UNHEALTHY
    (component,) = report.components
    assert component["status"] == "unhealthy"
    assert component["error"] == error


async def test_a_check_that_is_not_critical_is_shown_but_does_not_count():
    report = await check_health(Application("shop"), contributed("bad"))
    assert report.status is HealthStatus.HEALTHY
    assert report.components[0]["status"] == "unhealthy"


async def test_an_unhealthy_provider_makes_the_whole_unhealthy():
    class Sick(Provider):
        async def health_check(self, timeout=5.0):
            return HealthCheckResult("sick", HealthStatus.UNHEALTHY)

    report = await check_health(Application("shop", providers=[Sick()]), Contributors())
    assert report.status is HealthStatus.UNHEALTHY
