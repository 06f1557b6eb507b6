"""New customers: checked, welcomed according to their plan, notified by mail and phone."""

from lexigram.app import Application
from lexigram.sql import SqlConfig, SqlModule
from lexigram.workflow import Pipeline, PipelineContext, WorkflowModule, workflow
from lexigram.workflow.pipeline import ConditionalStep, FunctionStep, ParallelStep


def validate(context: PipelineContext) -> dict[str, str]:
    name = str(context.get_metadata("name", "")).strip()
    if not name:
        raise ValueError("a customer needs a name")
    return {"name": name, "plan": str(context.get_metadata("plan", "standard"))}


def is_premium(context: PipelineContext) -> bool:
    return bool(context.get_result("validate")["plan"] == "premium")


async def assign_adviser(context: PipelineContext) -> str:
    return f"an adviser calls {context.get_result('validate')['name']}"


async def send_guide(context: PipelineContext) -> str:
    return f"a guide is on its way to {context.get_result('validate')['name']}"


async def send_email(context: PipelineContext) -> str:
    return f"mailed {context.get_result('validate')['name']}"


async def send_sms(context: PipelineContext) -> str:
    return f"texted {context.get_result('validate')['name']}"


@workflow()
def onboarding() -> Pipeline:
    """Take a new customer in."""
    return Pipeline(
        "onboarding",
        [
            FunctionStep("validate", validate),
            ConditionalStep(
                "route",
                is_premium,
                FunctionStep("premium", assign_adviser),
                FunctionStep("standard", send_guide),
            ),
            ParallelStep(
                "notify",
                [FunctionStep("email", send_email), FunctionStep("sms", send_sms, timeout=5)],
            ),
        ],
    )


def create() -> Application:
    sql = SqlModule.configure(SqlConfig(url="sqlite:///onboarding.db"))
    return Application("onboarding", modules=[sql, WorkflowModule.stub(workflows=[onboarding])])
