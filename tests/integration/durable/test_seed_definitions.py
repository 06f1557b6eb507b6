"""The seed's definitions, with the steps of the AI workers behind their names."""

import pytest
from tests.unit.durable.test_definitions import BATCH, DEFAULT, VACUUM

from lexigram.workflow.durable import DefinitionFolders, DefinitionRegistry, HandlerCatalog

pytestmark = pytest.mark.anyio


async def test_the_seeds_files_load_unchanged_and_make_plans_of_real_steps(tmp_path):
    for folder, texts in (("workflows", (BATCH, VACUUM)), ("params", (DEFAULT,))):
        (tmp_path / folder).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / folder / f"{number}.yaml").write_text(text)
    registry = DefinitionRegistry(
        HandlerCatalog(),
        DefinitionFolders(workflow_dir=tmp_path / "workflows", param_dir=tmp_path / "params"),
        packages=(),
    )
    for workflow_id in ("batch", "batch_split_vacuum"):
        plan = await registry.plan(workflow_id, "default")
        assert len(plan.steps) == 5
        assert all(step.handler.startswith("lexigram.ai.workers.steps.") for step in plan.steps)
        assert plan.lifecycle
