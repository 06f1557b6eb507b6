"""The application: compose modules, start, watch, stop."""

from lexigram.app.application import Application, create_app, run_application
from lexigram.app.errors import ApplicationError, AppShutdownError, AppStartupError
from lexigram.app.state import AppState

__all__ = [
    "AppShutdownError",
    "AppStartupError",
    "AppState",
    "Application",
    "ApplicationError",
    "create_app",
    "run_application",
]
