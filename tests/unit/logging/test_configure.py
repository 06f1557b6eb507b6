"""Logging is set up once, beside what others set up, and shows no secret."""

import io
import json
import logging
import subprocess
import sys
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger as loguru_logger

from lexigram.config import LexigramConfig, LoggingConfig, SecretStr
from lexigram.observability import configure_logging, get_logger, reset_logging
from lexigram.testing import capture_logs


@pytest.fixture(autouse=True)
def _clean():
    yield
    reset_logging()


class Shown:
    """What was written to stderr so far."""

    def __init__(self, capsys) -> None:
        self._capsys = capsys
        self._text = ""

    def getvalue(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys) -> Shown:
    return Shown(capsys)


def lines(stream: Shown | io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_standard_logging_is_routed_to_the_console(stderr):
    configure_logging()
    logging.getLogger("shop.orders").info("paid %d", 3)
    logging.getLogger("shop.orders").debug("not shown")
    [line] = stderr.getvalue().splitlines()
    assert line[13:] == "INFO     shop.orders: paid 3"


def test_every_json_line_parses_and_has_fields_and_exception(stderr):
    configure_logging(LoggingConfig(json_format=True))
    log = get_logger("shop", tenant="t").bind(order=7)
    log.warning("line one\nline two {not a format}", amount=3)
    try:
        raise ValueError("broken")
    except ValueError:
        log.unbind("tenant", "never-bound").exception("failed")
    first, second = lines(stderr)
    assert datetime.fromisoformat(first.pop("time")).tzinfo is not None
    assert first == {
        "level": "WARNING",
        "level_no": 30,
        "logger": "shop",
        "message": "line one\nline two {not a format}",
        "fields": {"tenant": "t", "order": 7, "amount": 3},
    }
    assert second["fields"] == {"order": 7}
    assert second["exception"].startswith("Traceback (most recent call last):\n")
    assert second["exception"].endswith("ValueError: broken")


def test_fields_of_standard_logging_are_shown(stderr):
    configure_logging(LoggingConfig(json_format=True))
    logging.getLogger("lib").warning("x", extra={"size": 3, "where": object})
    [line] = lines(stderr)
    assert line["fields"] == {"size": 3, "where": "<class 'object'>"}


def test_fields_named_like_those_of_logging_itself_are_no_problem(stderr):
    configure_logging(LoggingConfig(json_format=True))
    get_logger("lib").warning("x", name="n", message="m", args=1)
    assert lines(stderr)[0]["fields"] == {"name": "n", "message": "m", "args": 1}


def test_handlers_of_others_stay_and_still_get_their_records(stderr):
    seen: list[str] = []

    class Theirs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    theirs = Theirs()
    root = logging.getLogger()
    before = [*root.handlers]
    root.addHandler(theirs)
    in_loguru: list[str] = []
    sink = loguru_logger.add(lambda message: in_loguru.append(message.record["message"]))
    try:
        configure_logging()
        assert [h for h in root.handlers if h in before or h is theirs] == [*before, theirs]
        root.warning("hello")
        assert seen == ["hello"]
        assert in_loguru == ["hello"]
        reset_logging()
        assert root.handlers == [*before, theirs]
        loguru_logger.warning("still there")
        assert in_loguru == ["hello", "still there"]
    finally:
        root.removeHandler(theirs)
        loguru_logger.remove(sink)


def test_configuring_again_replaces_and_never_doubles(stderr):
    before = len(logging.getLogger().handlers)
    for _ in range(3):
        configure_logging(LoggingConfig(level="DEBUG"))
    configure_logging(LoggingConfig(level="WARNING"))
    assert len(logging.getLogger().handlers) == before + 1
    logging.getLogger("x").warning("once")
    loguru_logger.warning("once")
    logging.getLogger("x").info("not shown")
    assert stderr.getvalue().count("once") == 2
    assert "not shown" not in stderr.getvalue()


def test_levels_are_as_before_after_a_reset(stderr):
    root, lib = logging.getLogger(), logging.getLogger("lib.sub")
    before = (root.level, lib.level)
    configure_logging(LoggingConfig(level="DEBUG", levels={"lib.sub": "ERROR"}))
    assert (root.level, lib.level) == (logging.DEBUG, logging.ERROR)
    reset_logging()
    assert (root.level, lib.level) == before


def test_a_level_that_was_set_meanwhile_stays_after_a_reset(stderr):
    before = logging.getLogger().level
    with capture_logs():
        configure_logging()  # as a command does that a test runs
    reset_logging()
    assert logging.getLogger().level == before


def test_a_root_level_someone_set_lower_stays(stderr):
    root = logging.getLogger()
    before = root.level
    root.setLevel(5)
    try:
        configure_logging(LoggingConfig(level="ERROR"))
        assert root.level == 5
        logging.getLogger("x").warning("theirs only")
        assert stderr.getvalue() == ""
    finally:
        reset_logging()
        root.setLevel(before)


def test_caplog_works_beside(stderr, caplog):
    configure_logging()
    with caplog.at_level(logging.DEBUG, logger="shop"):
        logging.getLogger("shop").debug("for caplog")
        get_logger("shop").info("for both", n=1)
    assert [record.getMessage() for record in caplog.records] == ["for caplog", "for both"]
    assert caplog.records[1].fields == {"n": 1}
    assert "for caplog" not in stderr.getvalue()
    assert "for both" in stderr.getvalue()


@pytest.mark.parametrize(
    ("number", "name"),
    [(1, "TRACE"), (7, "TRACE"), (15, "DEBUG"), (35, "WARNING"), (45, "ERROR"), (99, "CRITICAL")],
)
def test_levels_without_a_name_map_by_number(stderr, number, name):
    configure_logging(LoggingConfig(level="1", json_format=True))
    logging.getLogger("x").log(number, "odd")
    assert [(line["level"], line["level_no"]) for line in lines(stderr)] == [(name, number)]


def test_levels_of_an_application_keep_their_name(monkeypatch: pytest.MonkeyPatch, stderr):
    # A level cannot be taken back by the logging API; left behind it changes other tests' texts.
    monkeypatch.setattr(logging, "_levelToName", {**logging._levelToName, 27: "NOTICE"})
    monkeypatch.setattr(logging, "_nameToLevel", {**logging._nameToLevel, "NOTICE": 27})
    configure_logging(LoggingConfig(json_format=True))
    logging.getLogger("x").log(27, "named")
    assert lines(stderr)[0]["level"] == "NOTICE"


def test_levels_by_logger_name_hold_for_all_below(stderr):
    config = LoggingConfig(level="WARNING", levels={"shop": "DEBUG", "shop.noisy": "ERROR"})
    configure_logging(config)
    for name in ("shop.orders", "shop.noisy.sub", "shopping"):
        logging.getLogger(name).info("info of %s", name)
        logging.getLogger(name).warning("warning of %s", name)
    shown = [line[22:].partition(": ")[2] for line in stderr.getvalue().splitlines()]
    assert shown == ["info of shop.orders", "warning of shop.orders", "warning of shopping"]


def test_quiet_shows_warnings_only(stderr, monkeypatch):
    configure_logging(LoggingConfig(level="DEBUG", levels={"shop": "DEBUG"}), quiet=True)
    logging.getLogger("shop").info("no")
    logging.getLogger("shop").warning("yes")
    assert len(stderr.getvalue().splitlines()) == 1
    monkeypatch.setenv("LEX_QUIET", "1")
    configure_logging()
    logging.getLogger("shop").info("no")
    assert len(stderr.getvalue().splitlines()) == 1


@pytest.mark.parametrize("json_format", [True, False])
def test_secrets_are_hidden_in_fields_text_and_tracebacks(stderr, json_format):
    configure_logging(LoggingConfig(json_format=json_format, redact=("iban",)))
    log = get_logger("shop", password="hunter2")
    try:
        raise RuntimeError("cannot reach postgresql://me:hunter2@db/x")
    except RuntimeError:
        log.exception(
            "login with token=hunter2 at %s",
            "redis://:hunter2@host",
            iban="hunter2",
            nested={"api_key": "hunter2", "urls": ["amqp://a:hunter2@h"]},
            wrapped=SecretStr("hunter2"),
            config=LexigramConfig.from_dict({"mail": {"password": "hunter2"}}),
        )
    loguru_logger.bind(secret="hunter2").warning("direct {}", "password=hunter2")
    text = stderr.getvalue()
    assert "hunter2" not in text
    assert text.count("***") >= 8


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "Cc", "Cs"]), min_size=4).map(
        lambda text: f"zQ{text.replace('&', '').replace(';', '')}Zq"
    )
)
def test_no_secret_reaches_the_log_by_name_or_url(value):
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        configure_logging(LoggingConfig(json_format=True))
        get_logger("x", client_secret=value).info("x", headers={"Authorization": value})
        logging.getLogger("x").info("password=%s", value)
        reset_logging()
    assert value not in "".join(str(line) for line in lines(stream))
    assert len(lines(stream)) == 2


def test_a_record_that_does_not_fit_its_arguments_is_told_without_them(stderr):
    configure_logging()
    # Straight to our handler: the one of pytest raises on purpose.
    record = {"msg": "%d", "args": ("hunter2",), "levelno": 30, "levelname": "WARNING", "name": "x"}
    logging.getLogger().handlers[-1].handle(logging.makeLogRecord(record))
    [line] = stderr.getvalue().splitlines()
    assert line[13:] == "WARNING  x: '%d' does not fit its arguments (TypeError)"


@pytest.mark.parametrize("json_format", [True, False])
def test_a_field_that_cannot_be_shown_does_not_stop_the_caller(stderr, json_format):
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("no")

        __repr__ = __str__

    configure_logging(LoggingConfig(json_format=json_format))
    get_logger("x").warning("hello", field=Hostile())
    assert stderr.getvalue() == "x: a log line could not be shown (RuntimeError)\n"


def test_a_closed_stderr_does_not_stop_the_caller(monkeypatch):
    configure_logging()
    stream = io.StringIO()
    stream.close()
    for broken in (stream, None):
        monkeypatch.setattr(sys, "stderr", broken)
        logging.getLogger("x").warning("to nobody")


def test_asking_for_an_exception_where_there_is_none_is_no_problem(stderr):
    configure_logging(LoggingConfig(json_format=True))
    record = {"msg": "nothing was raised", "levelno": 40, "exc_info": (None, None, None)}
    logging.getLogger().handlers[-1].handle(logging.makeLogRecord(record))
    assert "exception" not in lines(stderr)[0]


def test_importing_configures_nothing_and_loads_no_loguru():
    code = (
        "import logging, sys, lexigram.observability as o; o.get_logger('x').warning('seen');"
        "import lexigram.config, lexigram.hooks, lexigram.events, lexigram.errors;"
        "print(logging.getLogger().handlers, sorted({'loguru', 'yaml', 'cattrs', 'orjson'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"
    assert done.stderr == "seen\n"
