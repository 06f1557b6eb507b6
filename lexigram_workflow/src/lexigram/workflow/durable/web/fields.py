"""Types of the parameters and bodies of these routes, with the bounds that all entries share."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from fastapi import Query
from pydantic import AfterValidator, Field

from lexigram.contracts.workflow.limits import (
    MAX_DEFINITION_LENGTH,
    MAX_ID,
    MAX_NAME_LENGTH,
    MAX_PAGE,
    MAX_PER_REQUEST,
    MAX_PRIORITY,
    MAX_ROWS_PER_PAGE,
    MAX_SECONDS,
    MAX_TEXT_LENGTH,
    MIN_PRIORITY,
)
from lexigram.sql.text import is_storable


def _storable(text: str) -> str:
    if not is_storable(text):
        raise ValueError("contains a NUL character or a lone surrogate: remove it")
    return text


_Storable: Final = AfterValidator(_storable)

Id: TypeAlias = Annotated[int, Field(ge=0, le=MAX_ID)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH), _Storable]
Text: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT_LENGTH), _Storable]
Uri: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH), _Storable]
Definition: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_DEFINITION_LENGTH)]
Priority: TypeAlias = Annotated[
    int, Field(ge=MIN_PRIORITY, le=MAX_PRIORITY, description="More is sooner.")
]
Delay: TypeAlias = Annotated[
    float,
    Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False, description="Seconds before it may begin."),
]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=MAX_PER_REQUEST)]
Offset: TypeAlias = Annotated[int, Query(ge=0, le=MAX_ID)]
Page: TypeAlias = Annotated[
    int | None,
    Query(ge=1, le=MAX_PAGE, description="From 1; without it the answer is a list."),
]
Rows: TypeAlias = Annotated[
    int | None, Query(ge=1, le=MAX_ROWS_PER_PAGE, description="Of a page; default: 10.")
]
