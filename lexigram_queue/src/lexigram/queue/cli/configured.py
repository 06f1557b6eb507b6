"""Read the configured backends: of the application, else of the configuration files."""

from __future__ import annotations

from lexigram.queue.config import QueueConfig
from lexigram.queue.constants import CONFIG_SECTION


def read_queue_config() -> QueueConfig | None:
    """The bus of the application named in pyproject.toml, else section ``queue`` of this folder.

    None: the application has no bus.
    """
    from lexigram.cli.loading import default_target, load_application
    from lexigram.cli.settings import read_config
    from lexigram.queue.di.provider import QueueProvider

    if default_target() is None:
        return read_config().get_section(CONFIG_SECTION, QueueConfig)
    application = load_application(None)
    for provider in application.providers:
        if isinstance(provider, QueueProvider):
            given = getattr(provider, "config", None)
            return given or read_config(application).get_section(CONFIG_SECTION, QueueConfig)
    return None
