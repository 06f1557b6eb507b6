"""Settings every test shares: the asyncio backend, hypothesis, and a watch on blocking calls."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

# No deadline: a busy machine is not a defect. Fixed examples in CI: a red run can be repeated.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


UNIT = Path(__file__).parent / "unit"
MAY_BLOCK = {
    # Before the first boot nothing else runs: the configuration is read, the graph checked.
    "lexigram/app/application.py": {"register"},
    "lexigram/di/container.py": {"freeze"},
    # The text of an error asks for the current folder, to show a short path.
    "lexigram/di/problems.py": {"__str__"},
}


@pytest.fixture(autouse=True)
def no_settings_from_outside(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit test means the same in every shell, and in CI with LEX_REQUIRE_SERVICES."""
    if request.path.is_relative_to(UNIT):
        for name in [name for name in os.environ if name.startswith("LEX_")]:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def blocking_calls_fail() -> Iterator[BlockBuster]:
    """Library code that blocks the event loop raises BlockingError in the test that ran it."""
    with blockbuster_ctx("lexigram") as watch:
        for call in watch.functions.values():
            for file, functions in MAY_BLOCK.items():
                call.can_block_in(file, functions)
        yield watch
