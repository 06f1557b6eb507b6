"""The settings of the AI workers."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from lexigram.ai.workers.constants import CONFIG_SECTION
from lexigram.config import BaseConfig


@frozen(kw_only=True)
class WorkersConfig(BaseConfig):
    """Section ``ai_workers``. It has no setting yet, so any key in it is refused as unknown."""

    config_section: ClassVar[str] = CONFIG_SECTION
