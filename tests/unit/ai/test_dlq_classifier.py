"""Why something failed: reasons, types, then texts; and rules of your own."""

import pytest
from tests.retries import HOPELESS

from lexigram.ai.workers import ErrorClassifier, FailureCategory
from lexigram.ai.workers.dlq import RuleClassifier

TRANSIENT, PERMANENT = FailureCategory.TRANSIENT, FailureCategory.PERMANENT
THROTTLED, INVALID = FailureCategory.THROTTLED, FailureCategory.INVALID_INPUT
UNKNOWN = FailureCategory.UNKNOWN


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("file not found", PERMANENT),
        ("the table does not exist", PERMANENT),
        ("Invalid API key", PERMANENT),
        ("malformed JSON", PERMANENT),
        ("Rate limit reached", THROTTLED),
        ("429 Too Many Requests", THROTTLED),
        ("quota exceeded for project", THROTTLED),
        ("validation error for field x", INVALID),
        ("400 Bad Request", INVALID),
        ("read timeout", TRANSIENT),
        ("connection reset by peer", TRANSIENT),
        ("503 from upstream", TRANSIENT),
        ("the cat sat on the mat", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_texts_are_known_by_their_phrases_in_order(text, category):
    assert ErrorClassifier.classify(text, {}) is category


@pytest.mark.parametrize(
    ("error", "category"),
    [
        ("TimeoutError: ", TRANSIENT),
        # The text alone would say PERMANENT: the type comes first.
        ("ConnectionResetError: invalid peer", TRANSIENT),
        ("builtins.FileNotFoundError: /x", PERMANENT),
        ("StepRefusedError: connection looks fine", INVALID),
        ("UnicodeDecodeError: bad byte", INVALID),
        (BrokenPipeError("anything"), TRANSIENT),
        (PermissionError("anything"), PERMANENT),
        (ValueError("rate limit"), THROTTLED),
    ],
)
def test_types_come_before_texts_also_as_the_name_in_front_of_a_kept_error(error, category):
    assert ErrorClassifier.classify(error) is category


def test_a_subclass_of_a_known_type_is_of_its_category_when_the_exception_is_given():
    class Own(ConnectionError): ...

    assert ErrorClassifier.classify(Own("x")) is TRANSIENT


@pytest.mark.parametrize("reason", ["aborted", "poison"])
def test_what_the_queue_decided_comes_first(reason):
    assert ErrorClassifier.classify("TimeoutError: x", {"reason": reason}) is PERMANENT


def test_rules_of_your_own_come_before_those_of_the_package():
    class Overloaded(Exception): ...

    rules = RuleClassifier(
        types={Overloaded: THROTTLED, "FileNotFoundError": TRANSIENT},
        texts=[(INVALID, ["page is empty"])],
        reasons={"poison": UNKNOWN},
    )
    assert rules.classify(Overloaded("x")) is THROTTLED
    assert rules.classify("FileNotFoundError: not mounted yet") is TRANSIENT
    assert rules.classify("The page is EMPTY") is INVALID
    assert rules.classify("x", {"reason": "poison"}) is UNKNOWN
    assert rules.classify("rate limit") is THROTTLED


@pytest.mark.parametrize("make", HOPELESS)
def test_what_is_not_retryable_is_permanent(make):
    assert ErrorClassifier.classify(make()) is PERMANENT
