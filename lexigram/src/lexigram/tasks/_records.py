"""Jobs from all of their fields at once: this is on the way of every job, in and out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from lexigram.contracts.infra.tasks.types import Job

# Of every field but those whose value is made anew for each job: ``id`` and ``kwargs``.
DEFAULTS: Final[Mapping[str, Any]] = {
    item.name: item.default for item in fields(Job) if item.default is not MISSING
}


def job_of(values: dict[str, Any]) -> Job:
    """The job with these values, one for every field; the dict is the job's from now on.

    1 µs: the constructor of a frozen class assigns one by one, which takes 6 for 27 fields.
    """
    job = object.__new__(Job)
    object.__setattr__(job, "__dict__", values)
    return job


def new_id() -> str:
    """``uuid4().hex``, without the object between: 1 µs instead of 3."""
    return f"{int.from_bytes(os.urandom(16)) & ~_KIND | _RANDOM_KIND:032x}"


# The bits of a UUID that say its version and variant (RFC 9562), and what they are in a random one.
_KIND: Final = 0xF << 76 | 0b11 << 62
_RANDOM_KIND: Final = 0x4 << 76 | 0b10 << 62
