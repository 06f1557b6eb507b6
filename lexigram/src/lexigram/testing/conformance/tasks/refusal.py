"""What is no job is refused with a reason, and leaves no trace."""

from __future__ import annotations

from typing import Any

from lexigram.contracts.core.result import Err
from lexigram.contracts.infra.tasks import Job, TaskQueueError
from lexigram.testing.conformance.tasks.spec import TaskQueueCapability, TaskQueueSpec, accepted


class RefusalSpec(TaskQueueSpec, capability=TaskQueueCapability.REFUSAL):
    """enqueue of bad input."""

    async def test_bad_input_is_an_err_and_nothing_is_kept(self, subject: Any) -> None:
        wrong: list[Any] = [
            {},
            {"name": ""},
            {"name": 3},
            {"name": "x" * 5000},
            {"name": "x", "priority": "high"},
            {"name": "x", "max_retries": -1},
            {"name": "x", "timeout": 0},
            {"name": "x", "timeout": float("nan")},
            {"name": "x", "args": "abc"},
            {"name": "x", "kwargs": [1]},
            {"name": "x", "kwargs": {"o": object()}},
            {"name": "x", "kwargs": {"nul": "a\x00b"}},
            {"name": "x", "colour": "red"},
            Job(name="x", id=""),
            "x",
            None,
        ]
        for task in wrong:
            answer = await subject.enqueue(task)
            assert isinstance(answer, Err), task
            assert isinstance(answer.error, TaskQueueError), task
        assert await subject.get_task_count() == 0
        assert await subject.dequeue() is None

    async def test_the_refusal_names_the_wrong_key(self, subject: Any) -> None:
        answer = await subject.enqueue({"name": "x", "colour": "red"})
        assert "colour" in str(answer.unwrap_err())

    async def test_an_id_is_accepted_once(self, subject: Any) -> None:
        await subject.enqueue(Job(name="first", id="same"))
        answer = await subject.enqueue(Job(name="second", id="same"))
        assert isinstance(answer, Err)
        assert (await subject.get_job("same")).name == "first"

    async def test_an_id_stays_taken_after_the_end(self, subject: Any) -> None:
        await subject.enqueue(Job(name="first", id="same"))
        await subject.dequeue()
        await subject.ack("same")
        assert isinstance(await subject.enqueue(Job(name="second", id="same")), Err)

    async def test_the_queue_works_on_after_a_refusal(self, subject: Any) -> None:
        await subject.enqueue({"name": ""})
        job_id = await accepted(subject)
        assert (await subject.dequeue()).id == job_id
