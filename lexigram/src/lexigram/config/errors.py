"""What can be wrong with a configuration: every problem at once, with source, key and fix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from attrs import asdict, frozen

from lexigram.contracts.core.errors import ConfigurationError


@frozen(kw_only=True)
class ConfigProblem:
    """One thing to repair. Holds only text that may be shown: secrets are masked before."""

    # File with line, or the name of the environment variable.
    source: str
    # Dotted path such as ``queue.backends[0].driver``; empty when the file itself is the problem.
    key: str = ""
    # The value as it may be shown; None when there is none to show.
    value: str | None = None
    # What was expected, or what is wrong.
    message: str
    # The nearest accepted name or value.
    suggestion: str | None = None

    def __str__(self) -> str:
        head = "  ".join(filter(None, (self.source, self.key)))
        shown = head if self.value is None else f"{head} = {self.value}"
        lines = [shown, f"    {self.message}"]
        if self.suggestion:
            lines.append(f"    did you mean: {self.suggestion}")
        return "\n".join(lines)


class ConfigSourceError(ConfigurationError):
    """Files or variables hold what the configuration classes do not accept."""

    code = "LEX_ERR_CFG_003"

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        title = f"{count} problem{'' if count == 1 else 's'} in the configuration"
        super().__init__(
            "\n\n".join([title, *map(str, self.problems)]),
            details={"problems": [asdict(problem) for problem in self.problems]},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,)


@frozen(kw_only=True)
class ConfigIssue:
    """A setting that is valid by itself but wrong for the environment it runs in."""

    field: str
    message: str
    severity: Literal["error", "warning"] = "error"
    suggestion: str | None = None

    def __str__(self) -> str:
        text = f"{self.field}: {self.message}"
        return f"{text}\n    {self.suggestion}" if self.suggestion else text
