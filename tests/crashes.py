"""The end of a process, as far as a test can play it within one."""

from typing import Self


class Crash(BaseExceptionGroup[KeyboardInterrupt]):
    """Passes through everything that takes exceptions of handlers, and ends no event loop.

    ``KeyboardInterrupt`` alone would end the loop of a task that it leaves; in a group it does not.
    """

    def __new__(cls, *facts: object) -> Self:
        return super().__new__(cls, "crash", [KeyboardInterrupt(*facts)])

    def __init__(self, *facts: object) -> None:
        super().__init__("crash", [KeyboardInterrupt(*facts)])
