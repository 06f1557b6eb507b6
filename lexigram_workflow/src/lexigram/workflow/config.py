"""The settings of orchestration."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from lexigram.config import BaseConfig
from lexigram.workflow.constants import CONFIG_SECTION


@frozen(kw_only=True)
class WorkflowConfig(BaseConfig):
    """Section ``workflow``. It has no setting yet, so any key in it is refused as unknown."""

    config_section: ClassVar[str] = CONFIG_SECTION
