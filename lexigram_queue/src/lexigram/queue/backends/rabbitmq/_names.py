"""Names of what the driver declares on the broker."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final


class Names:
    """What things are called on the broker. Odd characters in a name are written +XX."""

    def __init__(self, exchange: str, *, is_quorum: bool) -> None:
        self.exchange, self.is_quorum = exchange, is_quorum
        self.registry = f"{exchange}//registry"
        self.control = f"{exchange}//control"

    def queue(self, topic: str, group: str) -> str:
        return _short(f"{self.exchange}/{_part(topic)}/{_part(group)}")

    def backlog(self, topic: str) -> str:
        return _short(f"{self.exchange}//backlog/{_part(topic)}")

    def later(self, topic: str) -> str:
        return _short(f"{self.exchange}//later/{_part(topic)}")

    def dead(self, queue: str) -> str:
        return f"{queue}/dead"

    def attempts(self, queue: str) -> str:
        return f"{queue}/begun"

    def lock(self, queue: str) -> str:
        return f"{queue}/lock"

    def step(self, base: str, milliseconds: int) -> str:
        return f"{base}/retry/{milliseconds}"

    def binding(self, topic: str) -> str:
        """A binding that catches all the topic or pattern means; it may catch more.

        In AMQP * is one word and # any number of them; our * is any text.
        """
        words = ["#" if "*" in word else word for word in topic.split(".")]
        return ".".join(
            word for at, word in enumerate(words) if word != "#" or at == 0 or words[at - 1] != "#"
        )


def _part(name: str) -> str:
    """A name as part of another: what the client or our own slashes forbid is written +XX."""
    return _UNFIT.sub(lambda found: "".join(f"+{byte:02X}" for byte in found[0].encode()), name)


_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.:@#, -]")


def _short(name: str) -> str:
    """A name of a queue has 255 bytes, and suffixes follow."""
    if len(name.encode()) <= 220:
        return name
    return f"{name.encode()[:150].decode(errors='ignore')}@{sha256(name.encode()).hexdigest()[:32]}"
