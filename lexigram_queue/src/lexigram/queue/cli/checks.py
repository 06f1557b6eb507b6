"""Ask every configured broker whether it answers."""

from __future__ import annotations

from typing import TypeAlias

import anyio

from lexigram.contracts.core.health import HealthCheckResult, HealthStatus, worst
from lexigram.contracts.queue import QueueDriverProtocol, QueueError, QueueProtocol
from lexigram.queue.cli.configured import configured
from lexigram.queue.config import NamedQueueConfig
from lexigram.queue.drivers.registry import QueueDriverRegistry
from lexigram.queue.drivers.services import Services

NAME = "message_broker_connection"
TIMEOUT = 5.0  # seconds for one broker

Made: TypeAlias = QueueDriverProtocol | QueueProtocol


async def check_broker_connection() -> HealthCheckResult:
    """Connect to each backend on a connection of its own and ask it; the worst answer counts.

    A backend on the application's own database is left to the component ``queue``, which has
    that database.
    """
    started = anyio.current_time()
    made = await anyio.to_thread.run_sync(_made)  # imports and reads files
    answers = dict[str, HealthCheckResult]()
    async with anyio.create_task_group() as tasks:
        for name, driver in made.items():
            tasks.start_soon(_ask, name, driver, answers)
    bad = {name: one for name, one in answers.items() if not one.is_healthy()}
    return HealthCheckResult(
        component=NAME,
        status=worst(one.status for one in answers.values()),
        message=f"asked: {', '.join(sorted(answers)) or 'nobody, no broker is configured here'}",
        error="; ".join(f"{name}: {one.error or one.message}" for name, one in bad.items()) or None,
        duration_ms=(anyio.current_time() - started) * 1000,
        details={name: one.status.value for name, one in answers.items()},
    )


def _made() -> dict[str, Made | QueueError]:
    """A driver per backend that has a broker of its own, or why there is none.

    One in memory could only speak for itself.
    """
    config, registry = configured(), QueueDriverRegistry.with_defaults()
    backends = () if config is None else config.backends
    own = [one for one in backends if one.driver != "memory"]
    return {
        one.name: _driver(registry, one)
        for one in own
        if one.driver != "sql" or one.sql.url is not None
    }


def _driver(registry: QueueDriverRegistry, entry: NamedQueueConfig) -> Made | QueueError:
    try:
        return registry.create_driver(entry.driver, entry, Services())
    except QueueError as error:
        return error


async def _ask(name: str, made: Made | QueueError, answers: dict[str, HealthCheckResult]) -> None:
    try:
        if isinstance(made, QueueError):
            raise made
        answers[name] = await _answer(made)
    except QueueError as error:
        answers[name] = HealthCheckResult(
            component=name, status=HealthStatus.UNHEALTHY, error=error.message
        )


async def _answer(made: Made) -> HealthCheckResult:
    await made.connect()
    try:
        return await made.health_check(TIMEOUT)
    finally:
        with anyio.CancelScope(shield=True):
            await made.close()
