"""The bus on Redis Streams."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.redis._wire import LANES, lane_of
    from lexigram.queue.backends.redis.driver import (
        CAPABILITIES,
        RedisDriver,
        RedisQueue,
        build,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.redis._wire": ["LANES", "lane_of"],
            "lexigram.queue.backends.redis.driver": [
                "CAPABILITIES",
                "RedisDriver",
                "RedisQueue",
                "build",
            ],
        },
    )

__all__ = ["CAPABILITIES", "LANES", "RedisDriver", "RedisQueue", "build", "lane_of"]
