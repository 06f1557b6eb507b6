"""The pytest plugin: fixtures and markers of the testing kit, loaded when a test asks for them.

Everything but pytest itself is imported inside the fixture that needs it: this module is part
of every pytest run on a machine where Lexigram is installed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lexigram.app import Application
    from lexigram.testing.fakes import (
        FakeCache,
        FakeClock,
        FakeEventBus,
        FakeMetrics,
        FakeTracer,
    )
    from lexigram.testing.logs import CapturedLogs
    from lexigram.testing.services import Service

# Without this the asserts of shipped suites fail with nothing but "AssertionError".
pytest.register_assert_rewrite("lexigram.testing.conformance")

_SERVICES_OPTION = "lexigram_services"


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves only on request; it starts at 2025-01-01 00:00 UTC."""
    from lexigram.testing.fakes import FakeClock

    return FakeClock()


@pytest.fixture
def fake_event_bus() -> FakeEventBus:
    """An event bus that delivers, and remembers what was published."""
    from lexigram.testing.fakes import FakeEventBus

    return FakeEventBus()


@pytest.fixture
def fake_tracer(fake_clock: FakeClock) -> FakeTracer:
    """A tracer that keeps its spans, timed by ``fake_clock``."""
    from lexigram.testing.fakes import FakeTracer

    return FakeTracer(clock=fake_clock)


@pytest.fixture
def fake_metrics() -> FakeMetrics:
    """Metrics that can be read back."""
    from lexigram.testing.fakes import FakeMetrics

    return FakeMetrics()


@pytest.fixture
def fake_cache(fake_clock: FakeClock) -> FakeCache:
    """A cache in memory whose values expire by ``fake_clock``."""
    from lexigram.testing.fakes import FakeCache

    return FakeCache(clock=fake_clock)


@pytest.fixture
def boot() -> Callable[..., AbstractAsyncContextManager[Application]]:
    """The function of that name in ``lexigram.testing``, without an import."""
    from lexigram.testing import boot

    return boot


@pytest.fixture
def logs() -> Iterator[CapturedLogs]:
    """What is logged during the test, through loguru or the standard library."""
    from lexigram.testing.logs import capture_logs

    with capture_logs() as captured:
        yield captured


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Mapping[str, Service]:
    """Where the servers for tests are, by name; a test that uses one is marked with it."""
    return _services(request.config)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _SERVICES_OPTION,
        "Addresses of servers for tests, one per line: name = host:port",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "service(*names): the test needs these servers; it is skipped where one does not answer, "
        "and fails there with LEX_REQUIRE_SERVICES=1",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop before any fixture tries to reach a server that is not there."""
    for mark in item.iter_markers("service"):
        for name in mark.args:
            _demand(item, str(name))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A conformance test that was not run passes for nothing: it fails unless it may be skipped."""
    report = yield
    if report.skipped and _in_suite(item) and not _may_skip(item):
        vars(report).pop("wasxfail", None)
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} was skipped or is expected to fail. A conformance test is skipped only "
            "for a capability that is not declared, or for a server that @pytest.mark.service names."
        )
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per suite that ran: its contract, the outcomes, and what was not declared."""
    lines = _conformance_lines(terminalreporter.stats)
    if lines:
        terminalreporter.section("conformance")
        for line in lines:
            terminalreporter.line(line)


def _in_suite(item: pytest.Item) -> bool:
    # Not imported here: a run without suites does not need the module.
    frame = sys.modules.get("lexigram.testing.conformance.suite")
    cls = item.cls if isinstance(item, pytest.Function) else None
    return frame is not None and cls is not None and issubclass(cls, frame.ConformanceSuite)


def _may_skip(item: pytest.Item) -> bool:
    from lexigram.testing.conformance.suite import UNDECLARED_PROPERTY

    undeclared = any(key == UNDECLARED_PROPERTY for key, _ in item.user_properties)
    return undeclared or _MISSING_SERVICE in item.stash


def _conformance_lines(stats: Mapping[str, list[object]]) -> list[str]:
    from lexigram.testing.conformance.suite import CONTRACT_PROPERTY, UNDECLARED_PROPERTY

    contracts: dict[str, str] = {}
    outcomes: dict[str, Counter[str]] = {}
    undeclared: dict[str, set[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", ()))
            if not isinstance(report, pytest.TestReport) or CONTRACT_PROPERTY not in properties:
                continue
            suite = report.nodeid.partition("[")[0].rpartition("::")[0]
            contracts[suite] = str(properties[CONTRACT_PROPERTY])
            outcomes.setdefault(suite, Counter())[outcome] += 1
            if UNDECLARED_PROPERTY in properties:
                undeclared.setdefault(suite, set()).add(str(properties[UNDECLARED_PROPERTY]))
    return [
        f"{suite}: {contract}, {_counts(outcomes[suite])}{_without(undeclared.get(suite))}"
        for suite, contract in sorted(contracts.items())
    ]


def _counts(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())


def _without(undeclared: set[str] | None) -> str:
    return f"; not declared: {', '.join(sorted(undeclared))}" if undeclared else ""


def _demand(item: pytest.Item, name: str) -> None:
    services = _services(item.config)
    if name not in services:
        known = ", ".join(sorted(services))
        pytest.fail(f"no service is called {name!r} (there are: {known})", pytrace=False)
    answers = item.config.stash.setdefault(_ANSWERS, {})
    if name not in answers:
        answers[name] = services[name].answers()  # asked once a run: a missing host takes 0.5 s
    if answers[name]:
        return
    from lexigram.testing.services import do_without

    item.stash[_MISSING_SERVICE] = name
    do_without(f"{services[name].title} does not answer at {services[name].address}")


def _services(config: pytest.Config) -> Mapping[str, Service]:
    from lexigram.testing.services import configured_services

    try:
        return configured_services(config.getini(_SERVICES_OPTION))
    except ValueError as error:
        raise pytest.UsageError(f"{_SERVICES_OPTION}: {error}") from error


_ANSWERS = pytest.StashKey[dict[str, bool]]()
_MISSING_SERVICE = pytest.StashKey[str]()
