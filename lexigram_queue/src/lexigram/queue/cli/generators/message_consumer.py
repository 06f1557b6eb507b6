"""Generate a consumer with a typed payload."""

from __future__ import annotations

import keyword
import re
from typing import Any

from lexigram.cli.errors import CliError

DEFAULT_FIELDS = "message_type: str, payload: dict[str, object]"
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+")

_TEMPLATE = '''"""Handles the messages of topic {topic}."""

import attrs

from lexigram.queue import MessageConsumer


@attrs.frozen
class {name}Message:
    """What the payload is decoded to; another one becomes a dead letter."""

{fields}


class {name}Consumer(MessageConsumer):
    """Start it with ``QueueModule.scope({name}Consumer)``.

    Further parameters of ``handle`` are injected. A handler that returns has handled the
    message; one that raises gets it again later.
    """

    topic = {topic!r}
{backend}
    async def handle(self, message: {name}Message) -> None:
        print("{name}Consumer", message)
'''


class MessageConsumerGenerator:
    """``lexigram generate message_consumer OrderPlaced --fields number:int``."""

    name = "message_consumer"

    def __init__(
        self, output_dir: str = "src/consumers", fields_str: str | None = None, **options: Any
    ) -> None:
        self.output_dir = output_dir
        self._fields = fields_str
        self._options = options

    def generate(self, name: str, **options: Any) -> dict[str, str]:
        """The file by its name; the command line writes it."""
        chosen = {**self._options, **options}
        words = [word.lower() for word in _WORDS.findall(name)]
        if words and words[-1] == "consumer" and len(words) > 1:
            words.pop()
        if not words or not "_".join(words).isidentifier() or keyword.iskeyword("_".join(words)):
            raise CliError(f"{name!r} is not a valid name", hint="use a name such as OrderPlaced")
        snake, camel = "_".join(words), "".join(word.capitalize() for word in words)
        broker = chosen.get("broker")
        text = _TEMPLATE.format(
            topic=str(chosen.get("queue") or snake),
            name=camel,
            fields=_fields(str(chosen.get("fields") or self._fields or DEFAULT_FIELDS)),
            backend="" if broker is None else f"    backend = {broker!r}\n",
        )
        return {f"{snake}_consumer.py": text}


def _fields(text: str) -> str:
    lines = list[str]()
    for part in _split(text):
        name, _, kind = map(str.strip, part.partition(":"))
        if not name.isidentifier() or keyword.iskeyword(name) or not kind:
            raise CliError(
                f"{part.strip()!r} is not a valid field",
                hint="write fields such as number:int,items:list[str]",
            )
        try:
            compile(kind, "<field>", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            # MemoryError: the parser has no room for so many brackets.
            raise CliError(
                f"{kind!r} is not a valid type", hint="use a type such as int or list[str]"
            ) from error
        lines.append(f"    {name}: {kind}")
    return "\n".join(lines)


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts
