"""The states of an application."""

from __future__ import annotations

from enum import StrEnum


class AppState(StrEnum):
    """Where an application is in its life; it only ever moves forward."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
