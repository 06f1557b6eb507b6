"""The configuration an application would start with, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lexigram.app import Application
    from lexigram.config import LexigramConfig


def section_models(application: Application | None) -> dict[str, type[Any]]:
    """Section -> config class, as the providers of the application declare them."""
    providers = application.providers if application else ()
    return {
        provider.config_key: provider.config_model
        for provider in providers
        if provider.config_key is not None and provider.config_model is not None
    }


def read_config(application: Application | None = None) -> LexigramConfig:
    """The configuration of the application, or of this folder when there is none.

    Every problem is in one ConfigSourceError. Without an application nobody says which sections
    exist, so they are not checked.
    """
    from lexigram.config import load_config

    if application is None:
        return load_config()
    from lexigram.app import ApplicationError

    models = section_models(application)
    try:
        given = application.config
    except ApplicationError:  # not read yet
        return load_config(sections=models)
    return given.bind_sections(models)
