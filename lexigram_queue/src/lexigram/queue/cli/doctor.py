"""Check the configuration of the bus without connecting to a broker."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distribution

from lexigram.contracts.cli import DoctorResult, DoctorStatus
from lexigram.queue.backends.registry import QueueDriverRegistry
from lexigram.queue.cli.configured import read_queue_config
from lexigram.queue.config import NamedQueueConfig

DISTRIBUTION = "lexigram-queue"
_URLS = ("redis", "rabbitmq", "nats")  # drivers that fall back to an address on this machine


def check_broker_configured() -> DoctorResult:
    """Every backend has a driver that is installed, its library, and an address."""
    config = read_queue_config()
    if config is None:
        return DoctorResult(DoctorStatus.OK, "the application has no bus")
    if not config.backends:
        return DoctorResult(
            DoctorStatus.WARNING,
            "the bus has no backend",
            "add one to queue.backends, such as {name: events, driver: sql}",
        )
    errors = [text for entry in config.backends for text in _errors(entry)]
    notes = [text for entry in config.backends for text in _notes(entry)]
    details = {entry.name: entry.driver for entry in config.backends}
    if errors:
        return DoctorResult(DoctorStatus.ERROR, "; ".join([*errors, *notes]), None, details)
    if notes:
        return DoctorResult(DoctorStatus.WARNING, "; ".join(notes), None, details)
    listed = ", ".join(f"{name} ({driver})" for name, driver in details.items())
    return DoctorResult(DoctorStatus.OK, listed, None, details)


def _errors(entry: NamedQueueConfig) -> Iterator[str]:
    from lexigram.cli.installed import missing_extras

    known = QueueDriverRegistry.with_defaults().names()
    if entry.driver not in known:
        yield f"{entry.name}: unknown driver {entry.driver!r}, installed are {', '.join(known)}"
    missing = missing_extras(distribution(DISTRIBUTION)).get(entry.driver)
    if missing:
        yield (
            f"{entry.name}: {', '.join(missing)} is not installed, "
            f'pip install "{DISTRIBUTION}[{entry.driver}]"'
        )


def _notes(entry: NamedQueueConfig) -> Iterator[str]:
    settings = getattr(entry, entry.driver, None) if entry.driver in _URLS else None
    if entry.driver in _URLS and (settings is None or settings.url is None):
        yield f"{entry.name}: no address, so {entry.driver} on this machine is meant"
    if entry.driver == "memory":
        yield f"{entry.name}: memory ends with the process, and other processes do not see it"
