"""The state of a group in a process that receives for it."""

from __future__ import annotations

from lexigram.queue.runtime.topics import is_pattern


class Member:
    """The state of one group that this process receives for."""

    __slots__ = (
        "bell",
        "group",
        "is_pattern",
        "is_paused",
        "is_plain",
        "look_at",
        "name",
        "news",
        "own",
        "streams",
        "tidy_at",
        "topic",
        "turn",
    )

    def __init__(self, prefix: str, topic: str, group: str) -> None:
        self.name = (topic, group)
        self.topic, self.group = topic, group
        self.is_pattern = is_pattern(topic)
        place = f"group:{len(topic.encode())}:{topic}:{group}"
        self.own = f"{prefix}:{place}".encode()
        self.bell = f"{prefix}:bell:{place}".encode()
        main = () if self.is_pattern else (f"{prefix}:topic:{topic}".encode(),)
        self.streams = (*main, self.own, self.bell)
        self.news = (">",) * len(self.streams)
        # Only the plain streams need to be read; until a look says so, everything is looked at.
        self.is_plain = False
        self.is_paused = False
        self.look_at = self.tidy_at = 0.0  # by the clock of the event loop
        self.turn = 0  # which lane comes first
