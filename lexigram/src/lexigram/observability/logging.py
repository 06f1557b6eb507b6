"""Set logging up: loguru writes, standard logging is routed in, secrets stay hidden.

The only place that touches loguru. Called by the command line, ``app.run()`` and ``serve``;
importing or constructing an application never configures logging.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from lexigram.config import LoggingConfig, flag
from lexigram.config.escape import escape_json, escape_line, indent_lines
from lexigram.config.model import LEVELS, level_number
from lexigram.config.redact import is_secret_name, redact_text
from lexigram.config.safe import safe
from lexigram.observability.correlation import trace_ids

if TYPE_CHECKING:
    from loguru import Message, Record

# What every standard record has; anything else came in through ``extra=``.
# color_message is uvicorn's: the message once more, with escape codes
_STANDARD = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "fields", "color_message"}
)
_LEVEL_NAMES = {
    **{name: LEVELS[name] for name in ("TRACE", "SUCCESS")},
    **{name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")},
}


def configure_logging(config: LoggingConfig | None = None, *, quiet: bool | None = None) -> None:
    """Write log lines to stderr as ``config`` says; calling it again replaces the set-up.

    Handlers of others, on the root logger and in loguru, stay. ``quiet`` shows only warnings
    and errors; None asks the variable LEX_QUIET.
    """
    global _installed  # noqa: PLW0603 - logging is one per process
    from loguru import logger

    reset_logging()
    config = config or LoggingConfig()
    thresholds = _Thresholds.of(config, quiet=flag("LEX_QUIET") if quiet is None else quiet)
    _remove_sink(0)  # the one loguru comes with; it would write every line a second time
    sink = logger.add(
        _Sink(_json_line if config.json_format else _console_line, frozenset(config.redact)),
        level=0,
        format="{message}",
        filter=thresholds.let_through,
        backtrace=False,
        diagnose=False,  # it prints the values of variables, secrets included
        catch=False,  # so does its report of a failing sink; ours never fails
    )
    handler = _RoutingHandler()
    logging.getLogger().addHandler(handler)
    _installed = _Installed(handler, sink, _lower_levels(thresholds))


def reset_logging() -> None:
    """Undo ``configure_logging``; without one, nothing happens."""
    global _installed  # noqa: PLW0603 - logging is one per process
    if _installed is None:
        return
    logging.getLogger().removeHandler(_installed.handler)
    _remove_sink(_installed.sink)
    for name, level in _installed.levels.items():
        if logging.getLogger(name).level == level.ours:  # else a caller set it since
            logging.getLogger(name).setLevel(level.before)
    _installed = None


class _Level(NamedTuple):
    before: int
    ours: int


class _Installed(NamedTuple):
    handler: logging.Handler
    sink: int
    # Of the standard loggers that we changed; "" is the root.
    levels: Mapping[str, _Level]


_installed: _Installed | None = None


class _Thresholds(NamedTuple):
    """The least level that is shown, for all and by logger name."""

    default: int
    by_name: Mapping[str, int]

    @classmethod
    def of(cls, config: LoggingConfig, *, quiet: bool) -> _Thresholds:
        least = logging.WARNING if quiet else 0
        by_name = {name: max(level_number(text), least) for name, text in config.levels.items()}
        return cls(max(level_number(config.level), least), by_name)

    def let_through(self, record: Record) -> bool:
        return record["level"].no >= self._of(record["name"] or "")

    def _of(self, name: str) -> int:
        while name and name not in self.by_name:
            name = name.rpartition(".")[0]
        return self.by_name.get(name, self.default)


def _lower_levels(thresholds: _Thresholds) -> dict[str, _Level]:
    """Let standard loggers emit what we show; a level someone set lower than ours stays."""
    lowest = min(logging.getLogger().level, thresholds.default)
    changed: dict[str, _Level] = {}
    for name, level in {"": lowest, **thresholds.by_name}.items():
        logger = logging.getLogger(name)
        changed[name] = _Level(logger.level, level)
        logger.setLevel(level)
    return changed


def _remove_sink(sink: int) -> None:
    from loguru import logger

    try:
        logger.remove(sink)
    except ValueError:
        return  # another library has removed it already


class _RoutingHandler(logging.Handler):
    """Hands standard log records to loguru, with their own name, place and fields."""

    def emit(self, record: logging.LogRecord) -> None:
        from loguru import logger

        level = record.levelname if record.levelname in _LEVEL_NAMES else max(record.levelno, 0)
        error = record.exc_info if record.exc_info and record.exc_info[0] else None
        routed = logger.patch(lambda target: _describe(target, record))
        routed.opt(exception=error).log(level, _message(record))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - arguments are objects of others
        # Standard logging would print the arguments, which may be secret.
        return f"{record.msg!r} does not fit its arguments ({type(error).__name__})"


def _describe(target: Record, record: logging.LogRecord) -> None:
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    target["extra"] = {**extra, **getattr(record, "fields", {})}
    target["name"] = record.name
    target["function"] = record.funcName
    target["line"] = record.lineno
    if record.levelname != f"Level {record.levelno}" and record.levelname not in _LEVEL_NAMES:
        # A level of the application's own: keep the name it was given.
        target["level"].name = record.levelname


class _Sink:
    """Writes one line a record to stderr, whatever stderr is at that moment."""

    def __init__(self, line: Callable[[_Line], str], redact: frozenset[str]) -> None:
        self._line = line
        self._redact = redact

    def __call__(self, message: Message) -> None:
        record = message.record
        try:
            text = self._line(self._content(record))
        except Exception as error:  # noqa: BLE001 - fields are objects of others
            # loguru would print the record as it is, secrets included.
            text = f"{record['name']}: a log line could not be shown ({type(error).__name__})"
        # Without a stderr, or with a closed one, there is nobody to tell.
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def _content(self, record: Record) -> _Line:
        # Ids that the record brought win: a routed one may come from another task.
        fields = {**record["extra"], **(trace_ids() | record["extra"])}
        return _Line(
            time=record["time"].isoformat(timespec="milliseconds"),
            level=_level_name(record["level"].name, record["level"].no),
            level_no=record["level"].no,
            logger=record["name"] or "",
            message=redact_text(record["message"]),
            fields={name: self._field(name, value) for name, value in fields.items()},
            exception=_exception_text(record),
        )

    def _field(self, name: str, value: Any) -> Any:
        return safe(value, secret=name in self._redact or is_secret_name(name))


class _Line(NamedTuple):
    time: str
    level: str
    level_no: int
    logger: str
    message: str
    fields: dict[str, Any]
    exception: str


def _json_line(line: _Line) -> str:
    optional = {"fields", "exception"}
    data = {name: value for name, value in line._asdict().items() if value or name not in optional}
    return escape_json(json.dumps(data, default=lambda value: redact_text(str(value))))


def _console_line(line: _Line) -> str:
    clock = line.time[11:23]
    fields = "".join(f"  {name}={value}" for name, value in line.fields.items())
    text = f"{escape_line(line.logger)}: {indent_lines(line.message)}{escape_line(redact_text(fields))}"
    text = f"{clock} {line.level:<8} {text}"
    return f"{text}\n{indent_lines(line.exception)}" if line.exception else text


def _level_name(name: str, number: int) -> str:
    """The name of a level; one without a name takes that of the next level below."""
    if not name.startswith("Level "):
        return name
    below = [known for known, value in _LEVEL_NAMES.items() if value <= number]
    return max(below, key=_LEVEL_NAMES.__getitem__, default="TRACE")


def _exception_text(record: Record) -> str:
    error = record["exception"]
    if error is None or error.type is None:
        return ""
    lines = traceback.format_exception(error.type, error.value, error.traceback)
    return redact_text("".join(lines).rstrip())
