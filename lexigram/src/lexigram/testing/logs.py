"""Capture what is logged, through loguru or the standard library, and leave logging as found."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from loguru import Message

# What every standard record has; anything else came in through ``extra=``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "fields"}


@frozen(kw_only=True)
class LoggedRecord:
    """One thing that was logged."""

    level: str
    number: int
    logger: str
    message: str
    fields: Mapping[str, Any] = field(factory=dict)
    exception: BaseException | None = None

    def __str__(self) -> str:
        fields = "".join(f"  {name}={value!r}" for name, value in self.fields.items())
        return f"{self.level:<8} {self.logger}: {self.message}{fields}"


class CapturedLogs:
    """What was logged, in order."""

    def __init__(self) -> None:
        self.records: list[LoggedRecord] = []

    @property
    def messages(self) -> list[str]:
        """The messages alone."""
        return [record.message for record in self.records]

    @property
    def text(self) -> str:
        """One line a record: level, logger, message, fields."""
        return "".join(f"{record}\n" for record in self.records)

    def of(self, logger: str) -> list[LoggedRecord]:
        """Records of the logger and of those below it."""
        below = f"{logger}."
        return [r for r in self.records if r.logger == logger or r.logger.startswith(below)]

    def find(self, text: str = "", *, level: str = "NOTSET") -> list[LoggedRecord]:
        """Records whose message contains ``text``, of at least ``level``."""
        from lexigram.config.model import level_number

        least = level_number(level)
        return [r for r in self.records if text in r.message and r.number >= least]

    def assert_logged(self, text: str, *, level: str = "NOTSET") -> LoggedRecord:
        """The first record whose message contains ``text``, of at least ``level``."""
        found = self.find(text, level=level)
        if not found:
            raise AssertionError(
                f"{_describe_wanted(text, level)} was not logged; {self._describe_logged()}"
            )
        return found[0]

    def assert_not_logged(self, text: str = "", *, level: str = "NOTSET") -> None:
        """No message contains ``text``, or none of at least ``level`` does."""
        if self.find(text, level=level):
            raise AssertionError(
                f"{_describe_wanted(text, level)} was logged; {self._describe_logged()}"
            )

    def clear(self) -> None:
        """Forget what was logged so far."""
        self.records.clear()

    def _describe_logged(self) -> str:
        return f"logged were:\n{self.text}" if self.records else "nothing was logged"


@contextmanager
def capture_logs() -> Iterator[CapturedLogs]:
    """Capture every record of every level that reaches the root logger or loguru.

    A record that is routed from one to the other is captured once. Other handlers stay and go
    on; those of the root logger, caplog among them, see the lower levels too while it lasts.
    """
    from loguru import logger

    captured = CapturedLogs()
    root, handler = logging.getLogger(), _Handler(captured)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.NOTSET)
    sink = logger.add(lambda message: _take(message, captured), level=0, format="", catch=False)
    try:
        yield captured
    finally:
        logger.remove(sink)
        root.setLevel(level)
        root.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, captured: CapturedLogs) -> None:
        super().__init__()
        self._captured = captured

    def emit(self, record: logging.LogRecord) -> None:
        if _runs("loguru._handler", "emit", "_queued_writer"):
            return  # a loguru sink passes on what our own sink has
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        error = record.exc_info[1] if record.exc_info else None
        self._captured.records.append(
            LoggedRecord(
                level=record.levelname,
                number=record.levelno,
                logger=record.name,
                message=record.getMessage(),
                fields={**extra, **getattr(record, "fields", {})},
                exception=error,
            )
        )


def _take(message: Message, captured: CapturedLogs) -> None:
    if _runs("logging", "callHandlers"):
        return  # a standard handler passes on what our own handler has
    record = message.record
    error = record["exception"]
    captured.records.append(
        LoggedRecord(
            level=record["level"].name,
            number=record["level"].no,
            logger=record["name"] or "",
            message=record["message"],
            fields=dict(record["extra"]),
            exception=error.value if error else None,
        )
    )


def _runs(module: str, *functions: str) -> bool:
    """True while one of those functions is running below us in this thread."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in functions and frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


def _describe_wanted(text: str, level: str) -> str:
    least = "" if level == "NOTSET" else f" of at least {level}"
    return f"a message with {text!r}{least}" if text else f"a message{least}"
