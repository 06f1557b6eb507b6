"""Topics and consumer groups of Kafka for a topic and a group of the bus."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from attrs import frozen

RETRIES: Final = {"0s": 0.0, "5s": 5.0, "1m": 60.0, "10m": 600.0, "1h": 3600.0}
NAME_LENGTH: Final = 249  # characters of a topic


@frozen
class GroupTopics:
    topic: str
    group: str
    main: str
    group_id: str
    retries: dict[str, float]
    dead: str

    @property
    def all_topics(self) -> list[str]:
        return [self.main, *self.retries, self.dead]

    @property
    def now(self) -> str:
        """The topic for what comes again at once."""
        return next(iter(self.retries))

    @property
    def longest(self) -> str:
        return list(self.retries)[-1]


@lru_cache(maxsize=10_000)
def topics_of(prefix: str, topic: str, group: str) -> GroupTopics:
    stem = f"{topic}.{prefix}.{group}"
    return GroupTopics(
        topic=topic,
        group=group,
        main=legal_name(topic),
        group_id=f"{prefix}.{group}.{topic}",
        retries={legal_name(stem, f".retry.{name}"): length for name, length in RETRIES.items()},
        dead=legal_name(stem, ".dlq"),
    )


_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+|_(?=x[0-9A-F]{2})")


@lru_cache(maxsize=10_000)
def legal_name(text: str, suffix: str = "") -> str:
    """A name of Kafka: other characters become ``_xHH``; what is too long ends in a digest."""
    name = _ILLEGAL.sub(_hex, text) or "_x"
    if name in (".", ".."):
        name = name.replace(".", "_x2E")
    if len(name) + len(suffix) > NAME_LENGTH:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = f"{name[: NAME_LENGTH - len(suffix) - 17]}.{digest}"
    return name + suffix


def _hex(found: re.Match[str]) -> str:
    return "".join(f"_x{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def control_topic(group_id: str) -> str:
    """The topic that says which groups there are, and which are paused."""
    return legal_name(f"{group_id}.control")
