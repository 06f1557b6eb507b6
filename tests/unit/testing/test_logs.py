import logging
from contextlib import contextmanager

import pytest
from loguru import logger as loguru

from lexigram.observability import configure_logging, get_logger, reset_logging
from lexigram.testing import capture_logs

log = logging.getLogger("shop.orders")


@contextmanager
def unchanged():
    """Fail when the block leaves logging in another state than it found."""

    def state():
        root = logging.getLogger()
        # loguru shows its sinks only in its text.
        return root.level, list(root.handlers), str(loguru)

    before = state()
    yield
    assert state() == before


def test_records_of_both_kinds_are_captured_in_order(logs):
    log.warning("paid %s", 7)
    loguru.info("sent {}", 8)
    log.debug("details")
    assert [str(record) for record in logs.records] == [
        "WARNING  shop.orders: paid 7",
        f"INFO     {__name__}: sent 8",
        "DEBUG    shop.orders: details",
    ]
    assert logs.messages == ["paid 7", "sent 8", "details"]
    assert logs.text.startswith("WARNING  shop.orders: paid 7\n")


def test_fields_and_exceptions_are_kept(logs):
    get_logger("shop").bind(order=7).info("paid", amount=3)
    log.info("paid", extra={"order": 8})
    loguru.bind(order=9).info("paid")
    try:
        raise KeyError("x")
    except KeyError as error:
        log.exception("failed")
        loguru.exception("failed")
        caught = error
    assert [record.fields for record in logs.find("paid")] == [
        {"order": 7, "amount": 3},
        {"order": 8},
        {"order": 9},
    ]
    assert [record.exception for record in logs.find("failed")] == [caught, caught]


def test_a_record_routed_into_loguru_is_captured_once(logs):
    configure_logging()
    try:
        log.warning("routed")
        loguru.warning("direct")
    finally:
        reset_logging()
    assert logs.messages == ["routed", "direct"]


def test_routing_that_was_there_before_makes_no_difference(capsys):
    configure_logging()
    try:
        with capture_logs() as logs:
            log.warning("routed")
            log.debug("below the level that is shown")
    finally:
        reset_logging()
    assert logs.messages == ["routed", "below the level that is shown"]
    assert "routed" in capsys.readouterr().err


@pytest.mark.parametrize("enqueue", [False, True])
def test_a_loguru_record_passed_on_to_standard_logging_is_captured_once(logs, enqueue):
    def pass_on(message):
        logging.getLogger(message.record["name"]).warning(message.record["message"])

    sink = loguru.add(pass_on, format="{message}", enqueue=enqueue)
    try:
        loguru.warning("passed on")
        loguru.complete()
    finally:
        loguru.remove(sink)
    assert logs.messages == ["passed on"]


def test_standard_logging_inside_a_loguru_catch_is_captured(logs):
    @loguru.catch
    def work():
        log.info("inside")

    work()
    assert logs.messages == ["inside"]


def test_the_fixture_works_beside_caplog(logs, caplog):
    log.info("both")
    assert logs.messages == ["both"]
    assert caplog.messages == ["both"]
    caplog.set_level(logging.ERROR)
    log.info("below the level caplog set")
    assert logs.messages == ["both"]


def test_logging_is_left_as_it_was_found():
    with unchanged(), capture_logs() as logs:
        log.debug("x")
        loguru.debug("y")
    log.warning("after")
    loguru.warning("after")
    assert logs.messages == ["x", "y"]


def test_logging_is_left_as_it_was_found_when_the_test_fails():
    with unchanged(), pytest.raises(KeyError), capture_logs():
        logging.getLogger().setLevel(logging.CRITICAL)
        raise KeyError


def test_captures_nest():
    with capture_logs() as outer:
        log.info("a")
        with capture_logs() as inner:
            log.info("b")
        log.info("c")
    assert (outer.messages, inner.messages) == (["a", "b", "c"], ["b"])


def test_records_are_found_by_logger_text_and_level(logs):
    log.info("paid 7")
    logging.getLogger("shop").warning("paid 8")
    logging.getLogger("shopping").error("paid 9")
    assert [record.message for record in logs.of("shop")] == ["paid 7", "paid 8"]
    assert [record.message for record in logs.find("paid", level="WARNING")] == ["paid 8", "paid 9"]
    assert logs.assert_logged("paid", level="ERROR").logger == "shopping"
    logs.assert_not_logged("refunded")
    logs.assert_not_logged(level="CRITICAL")
    logs.clear()
    assert logs.records == []


def test_a_failed_assertion_shows_what_was_logged(logs):
    with pytest.raises(AssertionError, match="a message with 'x' was not logged; nothing was"):
        logs.assert_logged("x")
    log.info("paid")
    with pytest.raises(AssertionError) as caught:
        logs.assert_logged("paid", level="ERROR")
    assert str(caught.value) == (
        "a message with 'paid' of at least ERROR was not logged; logged were:\n"
        "INFO     shop.orders: paid\n"
    )
    with pytest.raises(AssertionError, match="message of at least INFO was logged;"):
        logs.assert_not_logged(level="INFO")
