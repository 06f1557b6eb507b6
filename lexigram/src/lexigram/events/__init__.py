"""Events inside one process: the bus, the emitter, the events of an application's life."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.contracts.domain.events import DomainEvent
    from lexigram.contracts.events.errors import EventError
    from lexigram.contracts.events.protocols import EventBusProtocol, EventHandlerProtocol
    from lexigram.events.bus import EventBus
    from lexigram.events.emitter import EventEmitter
    from lexigram.events.lifecycle import (
        ApplicationStarted,
        ApplicationStarting,
        ApplicationStopped,
        ApplicationStopping,
        HealthCheckCompleted,
        ProviderBooted,
        ProviderRegistered,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.contracts.domain.events": ["DomainEvent"],
            "lexigram.contracts.events.errors": ["EventError"],
            "lexigram.contracts.events.protocols": ["EventBusProtocol", "EventHandlerProtocol"],
            "lexigram.events.bus": ["EventBus"],
            "lexigram.events.emitter": ["EventEmitter"],
            "lexigram.events.lifecycle": [
                "ApplicationStarted",
                "ApplicationStarting",
                "ApplicationStopped",
                "ApplicationStopping",
                "HealthCheckCompleted",
                "ProviderBooted",
                "ProviderRegistered",
            ],
        },
    )

__all__ = [
    "ApplicationStarted",
    "ApplicationStarting",
    "ApplicationStopped",
    "ApplicationStopping",
    "DomainEvent",
    "EventBus",
    "EventBusProtocol",
    "EventEmitter",
    "EventError",
    "EventHandlerProtocol",
    "HealthCheckCompleted",
    "ProviderBooted",
    "ProviderRegistered",
]
