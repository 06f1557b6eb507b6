"""Subjects and names of consumers for topics and groups."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from attrs import frozen

from lexigram.queue.runtime.topics import is_pattern


@frozen
class Place:
    """A topic or pattern and a group, and their names on the server."""

    topic: str
    group: str
    name: str  # of the consumer
    subject: str  # that it filters by
    is_pattern: bool


@lru_cache(maxsize=10_000)
def place_of(stream: str, topic: str, group: str) -> Place:
    pattern = is_pattern(topic)
    name = f"{_slug(topic)}-{_slug(group)}-{digest(topic, group)}"
    subject = _family(topic) if pattern else subject_of(topic)
    return Place(topic, group, name, f"{stream}.{subject}", pattern)


@lru_cache(maxsize=10_000)
def keeper_of(topic: str) -> str:
    return f"kept-{_slug(topic)}-{digest(topic)}"


@lru_cache(maxsize=10_000)
def subject_of(topic: str) -> str:
    """A topic as subject: dots divide it, what a subject cannot hold is percent-encoded.

    A part without any text is a lone percent sign.
    """
    return ".".join(_UNFIT.sub(percent, part) or "%" for part in topic.split("."))


@lru_cache(maxsize=10_000)
def topic_of(subject: str) -> str:
    return ".".join("" if part == "%" else unquote(part) for part in subject.split("."))


def _family(pattern: str) -> str:
    """The narrowest subject with all topics of a pattern, whose star crosses dots too."""
    fixed = pattern.split("*", 1)[0].split(".")[:-1]
    return ".".join([*(subject_of(part) for part in fixed), ">"])


def _slug(text: str) -> str:
    """Something an operator recognises; the digest makes it unique."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)[:40].strip("-")


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:20]


def percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


_UNFIT: Final = re.compile(r"[^!-$&-)+-=?-~]+")  # not printable, or one of space % * >
