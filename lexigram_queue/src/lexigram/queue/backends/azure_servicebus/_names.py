"""Names of topics, queues and subscriptions on the service."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen

from lexigram.queue.backends.clouds import hash_text


@frozen(kw_only=True)
class Place:
    """The names of one group on the service."""

    prefix: str
    topic: str
    group: str
    has_keys: bool

    @property
    def entity(self) -> str:
        return f"{self.prefix}.topic.{short_name(self.topic)}-{hash_text(self.topic)[:16]}"

    @property
    def queue(self) -> str:
        return f"{self.prefix}.group.{self._part}"

    @property
    def keyed(self) -> str | None:
        return f"{self.prefix}.keyed.{self._part}" if self.has_keys else None

    @property
    def queues(self) -> Sequence[tuple[str, bool]]:
        """Each queue, and whether it is the one with sessions."""
        return [(self.queue, False), *([(self.keyed, True)] if self.keyed else [])]

    def subscription(self, is_keyed: bool) -> str:
        return f"{'keyed' if is_keyed else 'group'}-{hash_text(self.group)[:32]}"

    @property
    def _part(self) -> str:
        both = hash_text(f"{self.topic}\n{self.group}")[:24]
        return f"{short_name(self.topic)}.{short_name(self.group)}-{both}"


def short_name(name: str) -> str:
    """A part of a name for people; the hash beside it makes it the only one."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip(".-")[:60] or "x"
