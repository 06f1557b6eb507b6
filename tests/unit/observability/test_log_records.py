"""Log lines of both libraries carry the ids of the current span."""

import json
import logging

import pytest
from loguru import logger as loguru_logger

from lexigram.config import LoggingConfig
from lexigram.observability import (
    configure_logging,
    get_logger,
    log_trace_ids,
    reset_logging,
    trace_ids,
)
from lexigram.observability.otel import OtelTracer
from lexigram.testing.fakes import FakeTracer


@pytest.fixture(params=[FakeTracer, lambda: OtelTracer("t")], ids=["fake", "otel"])
def tracer(request):
    return request.param()


@pytest.fixture(autouse=True)
def _clean(tracer):
    factory = logging.getLogRecordFactory()
    forget = log_trace_ids(tracer)
    yield
    forget()
    forget()
    reset_logging()
    assert logging.getLogRecordFactory() is factory


def ids(span):
    return {"trace_id": span.context.trace_id, "span_id": span.context.span_id}


def test_lines_of_both_libraries_carry_the_ids(tracer, capsys):
    configure_logging(LoggingConfig(json_format=True))
    with tracer.start_span("work") as span:
        get_logger("shop").info("paid", amount=3)
        # as uvicorn does: the message a second time, with escape codes
        logging.getLogger("lib").warning("old", extra={"color_message": "\x1b[36mold"})
        loguru_logger.bind(order=7).info("direct")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["fields"] for line in lines] == [
        {"amount": 3, **ids(span)},
        ids(span),
        {"order": 7, **ids(span)},
    ]


def test_the_console_shows_them(tracer, capsys):
    configure_logging()
    with tracer.start_span("work") as span:
        logging.getLogger("shop").info("paid")
    line = capsys.readouterr().err
    assert f"trace_id={span.context.trace_id}" in line
    assert f"span_id={span.context.span_id}" in line


def test_outside_a_span_there_are_none(tracer, capsys, caplog):
    configure_logging(LoggingConfig(json_format=True))
    with tracer.start_span("work"):
        pass
    logging.getLogger("shop").warning("after")
    assert "fields" not in json.loads(capsys.readouterr().err)
    assert not hasattr(caplog.records[0], "trace_id")
    assert trace_ids() == {}


def test_standard_records_carry_them_for_handlers_of_others(tracer, caplog):
    with tracer.start_span("outer"), tracer.start_span("inner") as inner:
        logging.getLogger("shop").warning("inside")
    (record,) = caplog.records
    assert {"trace_id": record.trace_id, "span_id": record.span_id} == ids(inner)


def test_ids_given_with_the_line_win(tracer, capsys):
    configure_logging(LoggingConfig(json_format=True))
    with tracer.start_span("work") as span:
        get_logger("shop").info("from elsewhere", trace_id="theirs")
    fields = json.loads(capsys.readouterr().err)["fields"]
    assert fields == {"trace_id": "theirs", "span_id": span.context.span_id}


def test_several_tracers_are_asked_through_one_factory(tracer):
    ours = logging.getLogRecordFactory()
    forget = log_trace_ids(FakeTracer())
    assert logging.getLogRecordFactory() is ours
    forget()
    with tracer.start_span("work") as span:
        assert trace_ids() == ids(span)


def test_a_factory_that_somebody_put_around_ours_stays():
    before, other = logging.getLogRecordFactory(), FakeTracer()

    def wrapped(*args, **kwargs):
        return before(*args, **kwargs)

    logging.setLogRecordFactory(wrapped)
    forget = log_trace_ids(other)
    try:
        with other.start_span("work") as span:
            record = logging.getLogger("shop").makeRecord("shop", 20, "f", 1, "m", (), None)
        assert record.span_id == span.context.span_id
    finally:
        forget()
        assert logging.getLogRecordFactory() is wrapped
        logging.setLogRecordFactory(before)
