"""A value or an error, returned instead of raised, with helpers to make and collect them."""

from lexigram.contracts.core.result import Err, Ok, Result, UnwrapError
from lexigram.result.helpers import (
    as_result,
    as_result_sync,
    collect,
    partition,
    try_catch,
    try_catch_sync,
)

__all__ = [
    "Err",
    "Ok",
    "Result",
    "UnwrapError",
    "as_result",
    "as_result_sync",
    "collect",
    "partition",
    "try_catch",
    "try_catch_sync",
]
