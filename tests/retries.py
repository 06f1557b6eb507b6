"""Errors that no further attempt can help, for the tests of every loop that tries again."""

import pytest

from lexigram.contracts.core.errors import ConfigurationError, LexigramError
from lexigram.di.errors import UnresolvableDependencyError


class OwnError(LexigramError):
    """An error of an application."""

    code = "SHOP_001"
    is_retryable = False


HOPELESS = [
    pytest.param(lambda: ConfigurationError("no key"), id="configuration"),
    pytest.param(lambda: UnresolvableDependencyError("nothing provides Repo"), id="wiring"),
    pytest.param(lambda: OwnError("closed"), id="own"),
    pytest.param(
        lambda: LexigramError("failed", cause=ConfigurationError("no key")), id="as the cause"
    ),
    pytest.param(lambda: ExceptionGroup("two", [ValueError(), OwnError("closed")]), id="group"),
]
