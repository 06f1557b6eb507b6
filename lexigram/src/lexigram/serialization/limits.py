"""How large and how deep data may be."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen
from attrs.validators import and_, ge, instance_of, le

from lexigram.serialization.errors import LimitError

# Beyond this the stack of the interpreter would end first, with a less clear error.
DEEPEST = 100


@frozen(kw_only=True)
class Limits:
    """Bounds for both directions: what is written can be read again under the same limits.

    ``max_depth`` counts containers inside each other. It bounds types that can nest without end
    (recursive classes, ``Any``); any other type says itself how deep its values are.
    """

    max_bytes: int = field(default=16 * 1024 * 1024, validator=and_(instance_of(int), ge(1)))
    max_depth: int = field(default=64, validator=and_(instance_of(int), ge(1), le(DEEPEST)))

    def check_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise LimitError(
                f"{size} bytes are more than the {self.max_bytes} allowed",
                details={"size": size, "max_bytes": self.max_bytes, "path": "$"},
                hint="store large content elsewhere and send a reference, or raise Limits.max_bytes",
            )

    def check_depth(self, tree: Any) -> None:
        """Walk level by level, so that depth costs no stack."""
        level, depth = [tree], 0
        while level := _containers(level):
            depth += 1
            if depth > self.max_depth:
                raise self.too_deep()
            level = [item for node in level for item in _items(node)]

    def too_deep(self) -> LimitError:
        return LimitError(
            f"containers are nested deeper than the {self.max_depth} levels allowed",
            details={"max_depth": self.max_depth, "path": "$"},
            hint="flatten the data (a value that contains itself never ends), "
            "or raise Limits.max_depth",
        )


def _containers(nodes: list[Any]) -> list[Any]:
    return [node for node in nodes if node.__class__ is dict or node.__class__ is list]


def _items(node: Any) -> Any:
    return node.values() if node.__class__ is dict else node
