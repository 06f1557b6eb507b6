"""The bus inside one process."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.memory._broker import MemoryBroker
    from lexigram.queue.backends.memory.driver import (
        CAPABILITIES,
        InMemoryQueue,
        MemoryDriver,
        build,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.memory._broker": ["MemoryBroker"],
            "lexigram.queue.backends.memory.driver": [
                "CAPABILITIES",
                "InMemoryQueue",
                "MemoryDriver",
                "build",
            ],
        },
    )

__all__ = ["CAPABILITIES", "InMemoryQueue", "MemoryBroker", "MemoryDriver", "build"]
