"""``/workflow/runs`` for pipelines, graphs and sagas: submit them, see them, answer them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from lexigram.contracts.workflow.durable import RunStatus
from lexigram.web import Inject
from lexigram.workflow.durable._listing import describe_orchestration, describe_question
from lexigram.workflow.durable.fleet import DurableFleet
from lexigram.workflow.durable.web.answers import PREFIX, RESPONSES, Durable
from lexigram.workflow.durable.web.bodies import body_docs, body_of
from lexigram.workflow.durable.web.fields import Delay, Id, Limit, Name, Offset, Priority

Fleet = Annotated[DurableFleet, Inject()]


class Submit(BaseModel):
    """A pipeline, graph or saga to run."""

    model_config = ConfigDict(extra="ignore")

    name: Name = Field(description="One of /workflow/orchestrations.")
    input: Any = Field(
        default=None,
        description="An object is the state of a graph, the facts of a pipeline, the arguments of"
        " a saga; a form has text only.",
    )
    priority: Priority = 0
    tenant: Name | None = None
    delay: Delay = 0.0
    idempotency_key: Name | None = Field(
        default=None, description="A second call with it finds the first run."
    )


class Answer(BaseModel):
    """The answer to a question."""

    model_config = ConfigDict(extra="ignore")

    answer: Any = Field(
        description="Any JSON; a form has text only.",
        validation_alias=AliasChoices("answer", "response"),
    )
    step: Name | None = Field(default=None, description="Which of several questions.")


class OrchestrationName(BaseModel):
    """Something to submit."""

    name: str
    kind: str = Field(description="graph, pipeline or saga.")


class QuestionRecord(BaseModel):
    """A step that waits for an answer."""

    run_id: int = Field(description="Answer this run.")
    run_group_id: int
    parent_run_id: int | None = Field(description="The run that made it.")
    workflow_definition_id: str
    step: str
    prompt: str
    asked_date: str


class Asked(BaseModel):
    """A question of the run, or of a run that it made."""

    run_id: int
    step: str
    prompt: str


class OrchestrationRecord(BaseModel):
    """The state of a pipeline, graph or saga."""

    run_id: int
    group_id: int
    name: str
    status: RunStatus
    done: list[str] = Field(description="Nodes or steps that ended, in order.")
    at_work: list[str] = Field(description="Those that run beside each other.")
    questions: list[Asked]
    error: str | None
    state: dict[str, Any]


def orchestrations() -> APIRouter:
    """The routes."""
    router = APIRouter(prefix=PREFIX, route_class=Durable, responses=RESPONSES)
    _runs(router)
    _questions(router)
    return router


def _runs(router: APIRouter) -> None:
    tags: list[Any] = ["pipelines, graphs and sagas"]

    @router.get(
        "/workflow/orchestrations",
        tags=tags,
        response_model=list[OrchestrationName],
        summary="List pipelines, graphs and sagas",
    )
    async def list_orchestrations(fleet: Fleet) -> Any:
        found = fleet.orchestrated
        return [{"name": name, "kind": found.kind(name)} for name in found.names]

    @router.post(
        "/workflow/runs",
        tags=tags,
        status_code=201,
        response_model=OrchestrationRecord,
        summary="Submit a pipeline, graph or saga",
        openapi_extra=body_docs(Submit),
    )
    async def submit(fleet: Fleet, body: Annotated[Submit, Depends(body_of(Submit))]) -> Any:
        run_id = await fleet.orchestrated.submit(
            body.name,
            body.input,
            priority=body.priority,
            tenant=body.tenant,
            delay=body.delay,
            idempotency_key=body.idempotency_key,
        )
        return describe_orchestration(await fleet.orchestrated.status(run_id))

    @router.get(
        "/workflow/runs/{run_id}/state",
        tags=tags,
        response_model=OrchestrationRecord,
        summary="Show the state of a pipeline, graph or saga",
    )
    async def state(fleet: Fleet, run_id: Id) -> Any:
        return describe_orchestration(await fleet.orchestrated.status(run_id))


def _questions(router: APIRouter) -> None:
    tags: list[Any] = ["questions"]

    @router.get(
        "/workflow/questions",
        tags=tags,
        response_model=list[QuestionRecord],
        summary="List open questions",
    )
    async def questions(
        fleet: Fleet, run_group_id: Id | None = None, limit: Limit = 1000, offset: Offset = 0
    ) -> Any:
        found = await fleet.questions.open(group_id=run_group_id, limit=limit, offset=offset)
        return [describe_question(one) for one in found]

    @router.get(
        "/workflow/runs/{run_id}/questions",
        tags=tags,
        response_model=list[QuestionRecord],
        summary="List the open questions of a run and of its child runs",
    )
    async def of_run(fleet: Fleet, run_id: Id) -> Any:
        return [describe_question(one) for one in await fleet.questions.of_run(run_id)]

    @router.post(
        "/workflow/runs/{run_id}/answer",
        tags=tags,
        response_model=QuestionRecord,
        summary="Answer a question",
        openapi_extra=body_docs(Answer),
    )
    async def answer(
        fleet: Fleet, run_id: Id, body: Annotated[Answer, Depends(body_of(Answer))]
    ) -> Any:
        asked = await fleet.questions.answer(run_id, body.answer, step=body.step)
        return describe_question(asked)
