import copy
import importlib
import pickle
import pkgutil
import re
from collections import Counter

import pytest

import lexigram.contracts
from lexigram.contracts.admin.errors import WidgetNotFoundError
from lexigram.contracts.core import LexigramError, LockConflictError, NotFoundError
from lexigram.contracts.exceptions.base import LexigramError as OldLexigramError
from lexigram.contracts.infra.cache.errors import CacheWriteError
from lexigram.contracts.queue.errors import QueueError, QueueFullError
from lexigram.contracts.workflow.errors import (
    PipelineExecutionError,
    SagaStepError,
    SagaVersionMismatchError,
    StateVersionConflictError,
)


def error_classes():
    for found in pkgutil.walk_packages(lexigram.contracts.__path__, "lexigram.contracts."):
        importlib.import_module(found.name)
    pending, found = [LexigramError], set()
    while pending:
        kind = pending.pop()
        pending.extend(kind.__subclasses__())
        if kind.__module__.startswith("lexigram.contracts"):
            found.add(kind)
    return sorted(found, key=lambda kind: kind.__name__)


def test_every_error_class_has_a_code_of_its_own():
    codes = Counter(kind.code for kind in error_classes())
    assert [code for code, count in codes.items() if count > 1] == []
    assert [kind for kind in error_classes() if "code" not in vars(kind)] == []
    assert [code for code in codes if not re.fullmatch(r"LEX_ERR_[A-Z]+_\d{3}", code)] == []


SAMPLES = [
    LexigramError("plain", details={"a": 1}, hint="try"),
    NotFoundError("no such thing"),
    LockConflictError("held by worker:7"),
    QueueError("down", backend="redis", topic="orders"),
    WidgetNotFoundError("queue", "depth"),
    CacheWriteError("k", "too large"),
    PipelineExecutionError("load", "no file", {"path": "x"}),
    SagaStepError("refused", "pay"),
    SagaVersionMismatchError("order-1", 2, 1),
    StateVersionConflictError("m", 3, 4),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("clone", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_pickling_whatever_its_constructor_takes(error, clone):
    twin = clone(error)
    assert type(twin) is type(error)
    assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))


def test_the_text_has_the_code_first_and_the_fix_last():
    assert str(LexigramError("broken")) == "[LEX_ERR_CORE_001] broken"
    assert str(LexigramError("broken", hint="mend it")) == (
        "[LEX_ERR_CORE_001] broken\n→ Fix: mend it"
    )
    assert str(SagaVersionMismatchError("order-1", 2, 1)) == (
        "[LEX_ERR_WF_009] saga 'order-1' is stored in version 1, this code has version 2\n"
        "→ Fix: finish old sagas with the old version, or add an upgrade"
    )


def test_facts_and_hint_can_be_added_in_the_raise_statement():
    error = LexigramError("broken").with_details(part="axle").with_hint("mend it")
    assert error.to_dict() == {
        "code": "LEX_ERR_CORE_001",
        "type": "LexigramError",
        "message": "broken",
        "hint": "mend it",
        "details": {"part": "axle"},
    }


def test_a_queue_error_names_backend_and_topic_beside_other_facts():
    error = QueueFullError("full", backend="memory", topic="orders", details={"depth": 9})
    assert (error.backend, error.topic) == ("memory", "orders")
    assert error.details == {"backend": "memory", "topic": "orders", "depth": 9}
    assert (QueueError().message, QueueError().backend) == ("Queue error", "unknown")


def test_a_pipeline_error_keeps_the_exception_as_its_cause():
    reason = ValueError("bad row")
    error = PipelineExecutionError("load", reason)
    assert error.cause is reason
    assert error.message == "Pipeline step 'load' failed: bad row"


def test_errors_are_also_the_builtin_a_caller_would_expect():
    assert issubclass(LockConflictError, TimeoutError)
    assert issubclass(StateVersionConflictError, RuntimeError)
    assert issubclass(NotFoundError, LookupError)


def test_the_old_path_gives_the_same_class():
    assert OldLexigramError is LexigramError
