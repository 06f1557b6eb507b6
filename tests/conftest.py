"""Settings every test shares: the asyncio backend, hypothesis, and a watch on blocking calls."""

import os

import pytest
from hypothesis import settings

# No deadline: a busy machine is not a defect. Fixed examples in CI: a red run can be repeated.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
