from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.infra.tasks import JobProtocol, JobStatus, ProgressSnapshot, ProgressStatus


@given(st.integers(), st.integers(), st.sampled_from(ProgressStatus))
def test_percent_stays_between_nothing_and_all(current, total, status):
    assert 0.0 <= ProgressSnapshot("t", current, total, status).percent <= 100.0


def test_percent_is_the_share_done_and_all_once_complete():
    assert ProgressSnapshot("t", 1, 4, ProgressStatus.RUNNING).percent == 25.0
    assert ProgressSnapshot("t", 3, 0, ProgressStatus.RUNNING).percent == 0.0
    assert ProgressSnapshot("t", 0, 0, ProgressStatus.COMPLETE).percent == 100.0


class Job:
    id = "1"
    name = "embed"
    args = ()
    kwargs = MappingProxyType({})
    priority = 0
    status = JobStatus.PENDING
    max_retries = 3
    timeout = None
    correlation_id = None
    causation_id = None


def test_any_record_with_the_fields_is_a_job():
    assert isinstance(Job(), JobProtocol)
    assert not isinstance(object(), JobProtocol)
