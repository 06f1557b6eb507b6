"""Bounds of options and arguments: what is beyond them is exit code 2 with the option's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from lexigram.contracts.workflow.errors import InvalidRunError


def bounded(check: Callable[[str, object], None]) -> Callable[..., Any]:
    """A callback of typer that is a check of ``lexigram.contracts.workflow.limits``."""

    def callback(param: typer.CallbackParam, value: Any) -> Any:
        if value is not None:
            try:
                check(param.name or "value", value)
            except InvalidRunError as error:
                hint = f" ({error.hint})" if error.hint else ""
                raise typer.BadParameter(f"{error.message}{hint}") from None
        return value

    return callback
