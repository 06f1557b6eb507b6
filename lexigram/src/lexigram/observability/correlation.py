"""Log lines find their trace: the ids of the current span, for every log record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from typing import Any

from lexigram.contracts.observability.tracing import TracerProtocol


def log_trace_ids(tracer: TracerProtocol) -> Callable[[], None]:
    """From now on log records carry ``trace_id`` and ``span_id`` of the tracer's current span.

    Standard records get them as attributes, and lines that ``configure_logging`` writes as
    fields; outside a span there are none. The returned function ends it. Several tracers, of
    several applications in one process, are asked in the order they came.
    """
    global _followed  # noqa: PLW0603 - logging is one per process
    entry = (tracer,)
    with _lock:
        _followed = (*_followed, entry)
        _install()
    return lambda: _forget(entry)


def trace_ids() -> dict[str, str]:
    """``trace_id`` and ``span_id`` of the current span; empty outside one.

    For sinks of your own: ``logger.configure(patcher=lambda r: r["extra"].update(trace_ids()))``.
    """
    for (tracer,) in _followed:
        span = tracer.get_current_span()
        context = span.context if span is not None else None
        if context is not None:
            return {"trace_id": context.trace_id, "span_id": context.span_id}
    return {}


_lock = Lock()
# Each call of ``log_trace_ids`` is one tuple, so that undoing it twice undoes no other.
_followed: tuple[tuple[TracerProtocol], ...] = ()
_plain: Callable[..., logging.LogRecord] | None = None


def _record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    make = _plain or logging.LogRecord
    record = make(*args, **kwargs)
    vars(record).update(trace_ids())
    return record


def _install() -> None:
    global _plain  # noqa: PLW0603 - logging is one per process
    # Another library may have wrapped ours: then it is still called, and asks the tracers each time.
    if _plain is None:
        _plain = logging.getLogRecordFactory()
        logging.setLogRecordFactory(_record)


def _forget(entry: tuple[TracerProtocol]) -> None:
    global _followed, _plain  # noqa: PLW0603 - logging is one per process
    with _lock:
        _followed = tuple(one for one in _followed if one is not entry)
        if not _followed and _plain is not None and logging.getLogRecordFactory() is _record:
            logging.setLogRecordFactory(_plain)
            _plain = None
