"""Check that every configured broker answers."""

from __future__ import annotations

from typing import TypeAlias

import anyio

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus, worst
from lexigram.contracts.queue import QueueDriverProtocol, QueueError, QueueProtocol
from lexigram.queue.backends.registry import QueueDriverRegistry
from lexigram.queue.backends.services import Services
from lexigram.queue.cli.configured import read_queue_config
from lexigram.queue.config import NamedQueueConfig

NAME = "message_broker_connection"
TIMEOUT = 5.0  # seconds for one broker

Broker: TypeAlias = QueueDriverProtocol | QueueProtocol


async def check_broker_connection() -> HealthCheckResult:
    """Connect to each backend separately and check its health; the worst result counts.

    A backend on the database of the application is checked by the component ``queue``, which has
    that database.
    """
    started = anyio.current_time()
    made = await anyio.to_thread.run_sync(_create_drivers)  # imports and reads files
    answers = dict[str, HealthCheckResult]()
    async with anyio.create_task_group() as tasks:
        for name, driver in made.items():
            tasks.start_soon(_ask, name, driver, answers)
    bad = {name: one for name, one in answers.items() if not one.is_healthy()}
    return HealthCheckResult(
        component=NAME,
        status=worst(one.status for one in answers.values()),
        message=f"checked: {', '.join(sorted(answers)) or 'nothing, no broker is configured here'}",
        error="; ".join(f"{name}: {one.error or one.message}" for name, one in bad.items()) or None,
        duration_ms=(anyio.current_time() - started) * 1000,
        details={name: one.status.value for name, one in answers.items()},
    )


def _create_drivers() -> dict[str, Broker | QueueError]:
    """A driver per backend that has a broker of its own, or the error.

    A broker in memory is left out: a new one would always be healthy.
    """
    config, registry = read_queue_config(), QueueDriverRegistry.with_defaults()
    backends = () if config is None else config.backends
    own = [one for one in backends if one.driver != "memory"]
    return {
        one.name: _driver(registry, one)
        for one in own
        if one.driver != "sql" or one.sql.url is not None
    }


def _driver(registry: QueueDriverRegistry, entry: NamedQueueConfig) -> Broker | QueueError:
    try:
        return registry.create_driver(entry.driver, entry, Services())
    except QueueError as error:
        return error


async def _ask(name: str, made: Broker | QueueError, answers: dict[str, HealthCheckResult]) -> None:
    try:
        if isinstance(made, QueueError):
            raise made
        answers[name] = await _answer(made)
    except QueueError as error:
        answers[name] = HealthCheckResult(
            component=name, status=HealthStatus.UNHEALTHY, error=error.message
        )


async def _answer(made: Broker) -> HealthCheckResult:
    await made.connect()
    try:
        return await made.health_check(TIMEOUT)
    finally:
        with anyio.CancelScope(shield=True):
            await made.close()
