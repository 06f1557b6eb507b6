"""Sample the statistics of every group as metrics, and trim dead letters to their policy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
from attrs import field, frozen

from lexigram.contracts.queue import QueueError
from lexigram.queue.bus import BusQueue
from lexigram.queue.operations.control import collect_statistics
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.queue.options import DeadLetterPolicy
from lexigram.queue.runtime.background import Background

if TYPE_CHECKING:
    from lexigram.contracts.observability.metrics import MetricsProtocol

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Sampled:
    """A backend with the policy of its dead letters."""

    queue: BusQueue
    policy: DeadLetterPolicy = field(factory=DeadLetterPolicy)


class Sampler:
    """Samples the backends every ``interval`` seconds, from start to stop.

    Gauges ``queue.depth``, ``queue.lag``, ``queue.dead_letters`` and ``queue.paused`` per queue,
    topic and group; counter ``queue.dead_letters_evicted``. Every process reports the
    same values: they are the broker's. An unreachable broker is logged once and sampled again.
    """

    def __init__(
        self,
        backends: Sequence[Sampled],
        *,
        metrics: MetricsProtocol | None = None,
        interval: float = 15.0,
    ) -> None:
        self._backends = backends
        self._metrics = metrics
        self._interval = interval
        self._background = Background("queue.sampler")
        self._unavailable: set[str] = set()

    async def start(self) -> None:
        """Begin; without metrics and policies there is nothing to do."""
        watched = [one for one in self._backends if self._metrics or not one.policy.keeps_all]
        if not watched:
            return
        await self._background.open()
        self._background.start(self._work, watched, name="queue.sampler")

    async def stop(self) -> None:
        """End; a second call does nothing."""
        await self._background.close()

    async def sample(self, one: Sampled) -> None:
        """Sample one backend now; raises QueueError."""
        if not one.policy.keeps_all:
            dropped = await DeadLetters(one.queue).trim(one.policy)
            if dropped and self._metrics:
                tags = {"queue": one.queue.name}
                self._metrics.increment("queue.dead_letters_evicted", float(dropped), tags)
        if self._metrics is None:
            return
        for found in await collect_statistics(one.queue):
            tags = {"queue": found.backend, "topic": found.topic, "group": found.group}
            values = {
                "depth": found.depth,
                "lag": found.lag,
                "dead_letters": found.dead_letters,
                "paused": int(found.is_paused),
            }
            for name, value in values.items():
                if value is not None:
                    self._metrics.gauge(f"queue.{name}", float(value), tags)

    async def _work(self, watched: Sequence[Sampled]) -> None:
        while True:
            for one in watched:
                await self._try_sample(one)
            await anyio.sleep(self._interval)

    async def _try_sample(self, one: Sampled) -> None:
        name = one.queue.name
        try:
            await self.sample(one)
        except QueueError as error:
            if name not in self._unavailable:
                _log.warning("queue %s: statistics are unavailable: %s", name, error)
            self._unavailable.add(name)
        else:
            self._unavailable.discard(name)
