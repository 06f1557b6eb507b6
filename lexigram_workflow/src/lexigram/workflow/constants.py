"""Fixed names of orchestration."""

from __future__ import annotations

from typing import Final

CONFIG_SECTION: Final = "workflow"
GRAPH_SECTION: Final = "workflow.graph"
CONTENT_CHECKPOINT_SECTION: Final = "workflow.content_checkpoints"
ENV_PREFIX: Final = "LEX_WORKFLOW__"
GRAPH_ENV_PREFIX: Final = "LEX_WORKFLOW__GRAPH__"
ENV_NESTED_DELIMITER: Final = "__"

DEFAULT_PIPELINE_TIMEOUT: Final = 60.0
DEFAULT_GRAPH_MAX_ITERATIONS: Final = 25
DEFAULT_GRAPH_NODE_TIMEOUT: Final = 120.0
