"""Names of topics and subscriptions on the service, and labels that say whose they are."""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from lexigram.queue.backends.clouds import hash_text
from lexigram.queue.errors import GCPPubSubQueueError

LABEL: Final = 63  # characters
MOST_LABELS: Final = 30  # for one name; 64 in all

GROUP_SUBSCRIPTION: Final = re.compile(r"/subscriptions/[^/]+\.group\.[^/]+-[0-9a-f]{24}$")


@frozen(kw_only=True)
class Place:
    """The names of one group on the service."""

    project: str
    topics: str
    subscriptions: str
    topic: str
    group: str

    @property
    def entity(self) -> str:
        return f"{self._topics}.topic.{short_name(self.topic)}-{hash_text(self.topic)[:16]}"

    @property
    def subscription(self) -> str:
        return f"{self._subscriptions}.group.{self._part}"

    @property
    def dead_topic(self) -> str:
        return f"{self._topics}.dead.{self._part}"

    @property
    def dead(self) -> str:
        return f"{self._subscriptions}.dead.{self._part}"

    @property
    def keeper(self) -> str:
        # By the prefix of topics: its groups may have several.
        part = f"{short_name(self.topic)}-{hash_text(self.topic)[:16]}"
        return f"projects/{self.project}/subscriptions/{self.topics}.kept.{part}"

    @property
    def mark(self) -> str:
        """The group, in an attribute and a filter."""
        return hash_text(f"{self.subscriptions}\n{self.topic}\n{self.group}")[:24]

    @property
    def _topics(self) -> str:
        return f"projects/{self.project}/topics/{self.topics}"

    @property
    def _subscriptions(self) -> str:
        return f"projects/{self.project}/subscriptions/{self.subscriptions}"

    @property
    def _part(self) -> str:
        return f"{short_name(self.topic)}.{short_name(self.group)}-{self.mark}"


def to_labels(kind: str, text: str) -> dict[str, str]:
    coded = b32encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=").lower()
    parts = [coded[start : start + LABEL] for start in range(0, len(coded), LABEL)]
    if len(parts) > MOST_LABELS:
        raise GCPPubSubQueueError(
            f"a name of {len(text)} characters is longer than Pub/Sub keeps",
            topic=text[:100],
            hint="use shorter names of topics and groups",
        )
    return {f"{kind}{number}": part for number, part in enumerate(parts)}


def from_labels(kind: str, labels: Mapping[str, str]) -> str | None:
    """The inverse; None where another program wrote the label."""
    parts: list[str] = []
    while (part := labels.get(f"{kind}{len(parts)}")) is not None:
        parts.append(part)
    coded = "".join(parts).upper()
    try:
        return b32decode(coded + "=" * (-len(coded) % 8)).decode("utf-8", "surrogatepass")
    except ValueError:
        return None


def short_name(name: str) -> str:
    """A part of a name for people; the hash beside it makes it the only one."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:60] or "x"
