"""What is wrong with an object graph, in words that name the place and the fix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import frozen

from lexigram.contracts.core.errors import LexigramError
from lexigram.di.markers import Key, show
from lexigram.di.signature import constructor_site

if TYPE_CHECKING:
    from lexigram.di.binding import Binding


class Site(NamedTuple):
    """A place in a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        path = self.file
        relative = os.path.relpath(path) if os.path.isabs(path) else path
        return f"{path if relative.startswith('..') else relative}:{self.line}"


@frozen(kw_only=True)
class Problem:
    """One thing wrong, with its own known code."""

    error: type[LexigramError]
    title: str
    lines: tuple[str, ...] = ()
    fix: str
    near: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The code of the error this would be on its own."""
        return self.error.code

    def render(self) -> str:
        """The problem as a block of text."""
        parts = [f"[{self.code}] {self.title}", *(f"    {line}" for line in self.lines)]
        parts.append(f"    fix: {self.fix}")
        if self.near:
            parts.append(f"    near: {' · '.join(self.near)}")
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The problem as JSON-ready data."""
        return {
            "code": self.code,
            "title": self.title,
            "path": list(self.lines),
            "fix": self.fix,
            "near": list(self.near),
        }


def path_lines(
    steps: Sequence[tuple[Binding, str | None]], missing: Key | None = None, verdict: str = ""
) -> tuple[str, ...]:
    """A path through the graph, one binding a line.

    Each step is a binding and the parameter that leads on from it; ``missing`` is what the
    last parameter asked for when nothing could be put there.
    """
    rows = [_row(steps, index) for index in range(len(steps))]
    if missing is not None:
        label = f"{_indent(len(steps))}{steps[-1][1]}: {show(missing)}"
        rows.append((label, verdict, ""))
    width = max(len(label) for label, _, _ in rows)
    middle = max((len(site) for _, site, bound in rows if bound), default=0)
    return tuple(
        f"{label:<{width}}  {site:<{middle if bound else 0}}  {bound}".rstrip()
        for label, site, bound in rows
    )


def bound_in(binding: Binding) -> str:
    """Where a binding was registered: module, file and line, lifetime."""
    site = f"  {binding.site}" if binding.site else ""
    return f"bound in {binding.module.name}{site}  ({binding.lifetime.value})"


def _row(steps: Sequence[tuple[Binding, str | None]], index: int) -> tuple[str, str, str]:
    binding, leads_on = steps[index]
    site = constructor_site(binding.target)
    label = binding.name
    if index:
        label = f"{_indent(index)}{steps[index - 1][1]}: {label}"
    elif leads_on:
        label = f"{label}({leads_on})"
    return label, str(Site(*site)) if site else "", bound_in(binding)


def _indent(depth: int) -> str:
    return "   " * (depth - 1) + "└─ " if depth else ""
