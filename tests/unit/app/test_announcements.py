"""Lifecycle events and hooks are emitted to those who listen, and built for nobody else."""

from __future__ import annotations

import pytest

from lexigram.app import Application
from lexigram.contracts.core.hooks import HookRegistryProtocol
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.events import EventBusProtocol
from lexigram.di import Provider
from lexigram.events import EventBus
from lexigram.events.lifecycle import ApplicationStarted, ApplicationStopped
from lexigram.hooks import HookRegistry

pytestmark = pytest.mark.anyio


class One(Provider): ...


async def test_every_step_of_a_life_is_an_event() -> None:
    seen: list[str] = []
    app = Application("a", providers=[One])
    app.events.subscribe(DomainEvent, lambda event: seen.append(event.event_type))
    async with app:
        await app.health_check()
    assert seen == [
        "ApplicationStarting",
        "ProviderRegistered",
        "ProviderBooted",
        "ApplicationStarted",
        "HealthCheckCompleted",
        "ApplicationStopping",
        "ApplicationStopped",
    ]


async def test_the_same_steps_are_hooks() -> None:
    seen: list[str] = []
    app = Application("a")
    app.hooks.on(ApplicationStarted, lambda payload: seen.append(payload.app_name))
    app.hooks.on(ApplicationStopped, lambda payload: seen.append(payload.event_type))
    async with app:
        pass
    assert seen == ["a", "ApplicationStopped"]


async def test_a_failing_listener_does_not_fail_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(event: DomainEvent) -> None:
        raise KeyError("listener")

    app = Application("a")
    app.events.subscribe(ApplicationStarted, broken)
    async with app:
        assert app.is_running
    assert "ApplicationStarted" in caplog.text


async def test_bus_and_registry_are_bound_by_default() -> None:
    async with Application("a") as app:
        assert app.container.get(EventBus) is app.events
        assert app.container.get(EventBusProtocol) is app.events
        assert app.container.get(HookRegistry) is app.hooks
        assert app.container.get(HookRegistryProtocol) is app.hooks
