"""Settings of durable runs: sections, variables, and the names the seed had for them."""

import pytest

from lexigram.config import ConfigSourceError, LexigramConfig, load_config
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.workflow.config import WorkflowConfig
from lexigram.workflow.durable.config import ALIASES, DROPPED, DurableConfig
from lexigram.workflow.durable.store.records import Terms


def read(env, tmp_path, text=""):
    (tmp_path / "application.yaml").write_text(text, encoding="utf-8")
    config = load_config(base_path=tmp_path, env=env, sections={"workflow": WorkflowConfig})
    return config.get_section("workflow", WorkflowConfig).durable


def test_a_worker_that_dies_is_missed_within_half_a_minute_by_default(tmp_path):
    durable = read({}, tmp_path)
    assert (durable.checkin_interval, durable.checkin_timeout) == (5.0, 30.0)
    assert Terms().lease == durable.checkin_timeout


def test_the_variables_of_the_seed_set_its_heartbeat_and_time_out(tmp_path):
    env = {"WORKER_CHECKIN_INTERVAL": "120", "WORKER_CHECKIN_TIMEOUT": "600"}
    durable = read(env, tmp_path)
    assert (durable.checkin_interval, durable.checkin_timeout) == (120.0, 600.0)


def test_the_other_defaults_are_those_of_the_seed(tmp_path):
    durable = read({}, tmp_path)
    assert durable.consumers == {"parse": 3, "store": 5, "*": 5}
    assert (durable.default_workflow_id, durable.default_param_id) == ("batch_split", "default")
    assert not durable.run_worker


def test_a_bare_variable_of_the_seed_sets_its_field(tmp_path):
    durable = read({"WORKER_TASK_COUNT": "7", "DOCLING_CONCURRENCY": "2"}, tmp_path)
    assert durable.consumers == {"parse": 2, "store": 7, "*": 7}


def test_the_variable_with_our_name_wins_over_the_seeds_and_both_over_the_file(tmp_path):
    text = "workflow: {durable: {task_count: 2, checkin_timeout: 60}}"
    env = {"WORKER_TASK_COUNT": "7", "LEX_WORKFLOW__DURABLE__TASK_COUNT": "9"}
    assert read(env, tmp_path, text).task_count == 9
    del env["LEX_WORKFLOW__DURABLE__TASK_COUNT"]
    assert read(env, tmp_path, text).task_count == 7
    assert read({}, tmp_path, text).task_count == 2
    assert read({}, tmp_path, text).checkin_timeout == 60.0


def test_a_wrong_value_names_the_bare_variable(tmp_path):
    with pytest.raises(ConfigSourceError, match="WORKER_TASK_COUNT"):
        read({"WORKER_TASK_COUNT": "many"}, tmp_path)


def test_a_dropped_variable_is_told_once(tmp_path, caplog):
    env = {"INGEST_QUEUE_CONCURRENCY": "20"}
    for _ in range(2):
        read(env, tmp_path)
    told = [r.getMessage() for r in caplog.records if "INGEST_QUEUE_CONCURRENCY" in r.getMessage()]
    assert len(told) == 1
    assert "no effect" in told[0]


def test_every_alias_is_a_field_and_nothing_is_both_kept_and_dropped():
    fields = {attribute.name for attribute in DurableConfig.__attrs_attrs__}
    assert set(ALIASES.values()) <= fields
    assert not set(ALIASES) & set(DROPPED)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"checkin_interval": 400}, "cannot keep leases"),
        ({"user_param_dir": "config/params"}, "same folder"),
        ({"pools": {"parse": 0}}, "parse"),
        ({"task_counts": 3}, "task_count"),
        ({"pools": {"parse": 10_001}}, "parse"),
        *[({name: 10_001}, name) for name in ("task_count", "parse_concurrency")],
        *[
            ({name: number}, name)
            for number in ("inf", "nan", 1e300, 2**200)
            for name in (
                *("checkin_timeout", "poll_interval", "stop_timeout", "retention"),
                *("ageing", "tenant_gap"),
            )
        ],
        ({"max_lost": 2**31}, "max_lost"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings, text):
    config = LexigramConfig(sections={"workflow": {"durable": settings}})
    with pytest.raises(ConfigurationError, match=text):
        config.get_section("workflow", WorkflowConfig)
