"""Drivers of the bus from settings by name, as the fixtures of the tests have them."""

import inspect


def make(kind, config, **settings):
    """``kind(...)``: settings it does not take itself are those of its ``config`` class."""
    taken = inspect.signature(kind).parameters
    own = {name: settings.pop(name) for name in list(settings) if name in taken}
    return kind(config=config(**settings), **own)
