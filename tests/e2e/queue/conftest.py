"""What the kill tests share."""

import os
import random

import pytest
from tests.e2e.sql.conftest import start_postgres  # noqa: F401 - a fixture


@pytest.fixture
def rng():
    """Of what is random in a test; printed, so that a red run can be repeated."""
    seed = int(os.environ.get("LEX_CHAOS_SEED", random.randrange(1, 2**31)))
    print("LEX_CHAOS_SEED", seed)
    return random.Random(seed)
