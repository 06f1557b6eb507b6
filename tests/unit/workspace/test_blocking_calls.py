import time

import pytest
from blockbuster import BlockingError

from lexigram.di import Container


class Slow:
    def __init__(self) -> None:
        time.sleep(0.001)


async def test_a_blocking_call_under_library_code_on_the_event_loop_fails_the_test():
    container = Container("app")
    container.singleton(Slow)
    container.freeze()
    with pytest.raises(BlockingError, match=r"time\.sleep"):
        container.get(Slow)


def test_outside_the_event_loop_blocking_is_fine():
    container = Container("app")
    container.singleton(Slow)
    container.freeze()
    assert isinstance(container.get(Slow), Slow)
