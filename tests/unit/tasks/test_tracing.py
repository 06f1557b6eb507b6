import pytest

from lexigram.app import Application
from lexigram.contracts.infra.tasks import JobRefusedError
from lexigram.contracts.observability import TracerProtocol
from lexigram.di import Provider
from lexigram.sql import SqlConfig, SqlModule
from lexigram.tasks import JobOptions, JobRetry, Jobs, TasksConfig, TasksModule, WorkerPools, job
from lexigram.testing.fakes import FakeTracer

pytestmark = pytest.mark.anyio


@job("mail", retry=JobRetry(base_delay=0.0))
async def mail(to: str, tracer: TracerProtocol, jobs: Jobs) -> str:
    span = tracer.get_current_span()
    if to == "nobody":
        raise ValueError("no such person")
    if to == "both":
        return await jobs.submit(mail, to="one")
    return span.context.trace_id


class Tracing(Provider):
    name = "tracing"

    def __init__(self, tracer):
        super().__init__()
        self._tracer = tracer

    async def register(self, container):
        container.singleton(TracerProtocol, self._tracer)


@pytest.fixture
def tracer():
    return FakeTracer()


@pytest.fixture(params=["memory", "sqlite"])
async def app(request, tracer, tmp_path):
    modules = [TasksModule.configure(TasksConfig(workers=False), handlers=[mail])]
    if request.param == "sqlite":
        modules.append(SqlModule.configure(SqlConfig(url=f"sqlite:///{tmp_path}/a.db")))
    async with Application(modules=modules, providers=[Tracing(tracer)]) as app:
        yield app


def attempts(tracer):
    return [span for span in tracer.spans if span.name == "tasks.run mail"]


async def test_the_span_of_an_attempt_is_a_child_of_the_span_that_enqueued_the_job(app, tracer):
    jobs, pools = app.container.get(Jobs), app.container.get(WorkerPools)
    with tracer.start_span("request") as request:
        job_id = await jobs.submit(mail, to="ann")
    await pools.drain()
    [span] = attempts(tracer)
    assert span.parent == request.context
    assert await jobs.result(job_id) == request.context.trace_id
    assert span.attributes == {
        "job.id": job_id,
        "job.name": "mail",
        "job.queue": "default",
        "job.attempt": 1,
        "job.end": "completed",
    }
    assert span.ended


async def test_every_attempt_has_a_span_with_its_error(app, tracer):
    jobs = app.container.get(Jobs)
    job_id = await jobs.submit(mail, to="nobody", options=JobOptions(max_retries=1))
    await app.container.get(WorkerPools).drain()
    assert (await jobs.outcome(job_id)).status.is_final
    spans = attempts(tracer)
    assert [span.attributes["job.attempt"] for span in spans] == [1, 2]
    assert [span.attributes["job.end"] for span in spans] == ["retry", "failed"]
    assert all(span.status == "error" for span in spans)
    assert all(isinstance(span.exceptions[0], ValueError) for span in spans)


async def test_jobs_of_a_handler_stay_in_its_trace(app, tracer):
    with tracer.start_span("request"):
        await app.container.get(Jobs).submit(mail, to="both")
    await app.container.get(WorkerPools).drain()
    outer, inner = attempts(tracer)
    assert inner.parent == outer.context


async def test_without_a_span_a_job_begins_a_trace_of_its_own(app, tracer):
    job_id = await app.container.get(Jobs).submit(mail, to="ann")
    await app.container.get(WorkerPools).drain()
    [span] = attempts(tracer)
    assert span.parent is None
    assert (await app.container.get(Jobs).get(job_id)).trace_context is None


async def test_a_trace_context_that_is_no_mapping_of_texts_is_refused(app):
    jobs = app.container.get(Jobs)
    for bad in ("00-1-1-01", {"traceparent": 1}):
        with pytest.raises(JobRefusedError, match="trace_context"):
            await jobs.submit_many([{"name": "mail", "trace_context": bad}])
