"""What a codec costs, next to the libraries it is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator

from harness import Plan, Section
from serialization import codecs

TITLE = "Serialization"
PEERS = ("orjson", "msgspec", "cattrs")


async def parts(plan: Plan) -> AsyncIterator[Section]:
    for section in await codecs.sections(plan):
        yield section
