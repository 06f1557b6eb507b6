"""Measure one backend: publish and handle messages on a temporary topic."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import anyio

from lexigram.contracts.queue import BusMessage
from lexigram.queue.bus import BusQueue
from lexigram.queue.options import ConsumerOptions

TOPIC = "lexigram.bench."  # topics of a run begin so
BATCH = 100  # messages of one publish_many


async def measure(
    queue: BusQueue, *, count: int, size: int, seconds: float, concurrency: int
) -> dict[str, Any]:
    """Publish up to ``count`` messages and handle them, for up to ``seconds`` seconds.

    The group is temporary and is dropped, with all it still holds, also when time is up.
    """
    topic = f"{TOPIC}{uuid4().hex[:8]}"
    latencies = list[float]()
    sent_at = dict[str, float]()
    done = anyio.Event()

    async def handle(message: BusMessage) -> None:
        began = sent_at.pop(message.id, None)
        if began is not None:  # a second delivery counts once
            latencies.append(anyio.current_time() - began)
        if len(latencies) == count:
            done.set()

    consumer = ConsumerOptions(
        topics=(topic,),
        group="bench",
        consumer_id=topic,
        concurrency=concurrency,
        prefetch=max(100, 2 * concurrency),
        temporary=True,
    )
    subscription = await queue.consume(consumer, handle)
    started = anyio.current_time()
    published, published_in = 0, 0.0
    try:
        with anyio.move_on_after(seconds):
            body = "x" * size
            while published < count:
                batch = [BusMessage(payload=body) for _ in range(min(BATCH, count - published))]
                sent_at.update((one.id, anyio.current_time()) for one in batch)
                await queue.publish_many(topic, batch)
                published += len(batch)
                published_in = anyio.current_time() - started
            await done.wait()
    finally:
        took = anyio.current_time() - started
        with anyio.CancelScope(shield=True):
            await subscription.stop(timeout=5.0)
            queue.forget(subscription)
    return _summarize(queue, published, published_in or took, latencies, took)


def _summarize(
    queue: BusQueue, published: int, published_in: float, latencies: list[float], took: float
) -> dict[str, Any]:
    latencies.sort()
    handled = len(latencies)
    return {
        "backend": queue.name,
        "driver": queue.driver.name,
        "published": published,
        "handled": handled,
        "seconds": round(took, 3),
        "published_per_second": round(published / published_in),
        "handled_per_second": round(handled / took),
        "latency_ms_p50": _milliseconds(latencies, 0.50),
        "latency_ms_p99": _milliseconds(latencies, 0.99),
    }


def _milliseconds(latencies: list[float], part: float) -> float | None:
    if not latencies:
        return None
    return round(latencies[min(len(latencies) - 1, int(len(latencies) * part))] * 1000, 2)
