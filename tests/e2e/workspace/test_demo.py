"""``make demo``, ``make hello`` and the examples behind them."""

from datetime import UTC, datetime

import pytest
from tests.make import make

from examples.hello.clock import Clock, ClockModule, StoppedClock
from examples.hello.desk import Desk, DeskModule, GuestBook
from examples.hello.greeting import GreetingConfig
from lexigram.app import Application
from lexigram.config import LexigramConfig
from lexigram.contracts.core import HealthStatus
from lexigram.di import Arg
from lexigram.di.errors import ModuleVisibilityError


def at(hour):
    return ClockModule.stub(datetime(2026, 1, 1, hour, tzinfo=UTC))


def test_make_hello_shows_modules_graph_health_and_an_answer():
    done = make("hello")
    assert done.returncode == 0, done.stderr
    for shown in ("GreetingModule  ClockModule", "flowchart LR", '-->|"greeter"|', "book open"):
        assert shown in done.stdout
    assert "Grace! You are guest number 2." in done.stdout


def test_make_demo_ingests_finds_what_it_must_and_shows_the_group():
    done = make("demo")
    assert done.returncode == 0, done.stderr
    for shown in ("telescope.pdf", "minutes.docx", "group_status: COMPLETED", "To try next"):
        assert shown in done.stdout


@pytest.mark.parametrize(
    ("hour", "answer"),
    [(9, "good morning, Ada"), (15, "hello, Ada"), (20, "good evening, Ada")],
)
async def test_the_words_follow_the_clock(hour, answer):
    async with Application("hello", LexigramConfig(), modules=[DeskModule, at(hour)]) as app:
        assert (await app.container.entry(visit)("Ada")).startswith(answer)


async def test_an_override_of_the_clock_reaches_the_greeter_that_was_built():
    async with Application("hello", LexigramConfig(), modules=[DeskModule, at(9)]) as app:
        entry = app.container.entry(visit)
        assert await entry("Ada") == "good morning, Ada! You are guest number 1."
        evening = StoppedClock(datetime(2026, 1, 1, 20, tzinfo=UTC))
        async with app.container.override(Clock, evening):
            assert await entry("Ada") == "good evening, Ada! You are guest number 2."
        assert await entry("Ada") == "good morning, Ada! You are guest number 3."


async def visit(who: Arg[str], desk: Desk) -> str:
    return desk.welcome(who)


async def test_the_guest_book_is_closed_when_the_application_stops():
    async with Application("hello", LexigramConfig(), modules=[DeskModule]) as app:
        book = app.container.of(DeskModule).get(GuestBook)
        assert book.is_open
        assert (await app.health_check()).status is HealthStatus.HEALTHY
    assert not book.is_open


async def test_what_is_not_exported_cannot_be_asked_for():
    async with Application("hello", LexigramConfig(), modules=[DeskModule]) as app:
        with pytest.raises(ModuleVisibilityError):
            app.container.get(GreetingConfig)
