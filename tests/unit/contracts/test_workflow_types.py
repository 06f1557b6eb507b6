import hashlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.workflow import (
    ContentCheckpointKey,
    RunGroupStats,
    RunStatus,
    SagaStep,
    SagaStepError,
)
from lexigram.contracts.workflow.content_checkpoint import canonical_json_bytes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def key(inputs, *, version="1", config=(), tenant=None):
    return ContentCheckpointKey.compute("embed", tenant, inputs, version, dict(config))


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_does_not_change_the_key(inputs):
    backwards = dict(reversed(inputs.items()))
    assert key(inputs) == key(backwards)


@given(JSON)
def test_canonical_json_reads_back_as_the_same_value(value):
    assert json.loads(canonical_json_bytes(value)) == value


def test_canonical_json_is_compact_sorted_utf8_with_iso_times():
    value = {"ü": datetime(2026, 1, 2, tzinfo=UTC), "a": [1, 2]}
    assert canonical_json_bytes(value) == '{"a":[1,2],"ü":"2026-01-02T00:00:00+00:00"}'.encode()


def test_what_json_does_not_know_is_refused_by_type():
    with pytest.raises(TypeError, match="set is not JSON"):
        canonical_json_bytes({"a": {1}})
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json_bytes(float("nan"))


def test_inputs_settings_version_and_tenant_each_make_another_key():
    keys = {
        key(1).as_str(),
        key(2).as_str(),
        key(1, version="2").as_str(),
        key(1, config={"size": 3}).as_str(),
        key(1, tenant="acme").as_str(),
    }
    assert len(keys) == 5


def test_the_text_of_a_key_is_stage_tenant_inputs_and_settings():
    inputs = hashlib.sha256(b'{"a":1}').hexdigest()
    config = hashlib.sha256(b'{"config":{"s":2},"handler_version":"v1"}').hexdigest()
    made = key({"a": 1}, version="v1", config={"s": 2})
    assert made.as_str() == f"embed|_global|{inputs}|{config}"


def test_a_saga_step_is_retried_once_and_may_be_compensated_again():
    step = SagaStep("pay", action=print)
    assert (step.max_retries, step.retry_delay, step.idempotent) == (1, 1.0, True)
    assert step.compensation is None


def test_a_saga_step_error_names_the_step():
    assert SagaStepError("refused", "pay").message == "Saga step 'pay': refused"
    assert SagaStepError("refused").message == "refused"


def test_group_statistics_have_exactly_the_seven_known_keys():
    stats = RunGroupStats(100, 95, 3, 0, 2, 45.3, RunStatus.RUNNING)
    assert json.loads(json.dumps(stats.to_dict())) == {
        "total_runs": 100,
        "completed": 95,
        "running": 3,
        "pending": 0,
        "failed": 2,
        "average_duration": 45.3,
        "group_status": "RUNNING",
    }
