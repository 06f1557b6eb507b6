"""The application: compose modules, start, watch, stop."""

from lexigram.app.application import Application, AppState, create_app, run_application
from lexigram.app.errors import ApplicationError, AppShutdownError, AppStartupError

__all__ = [
    "AppShutdownError",
    "AppStartupError",
    "AppState",
    "Application",
    "ApplicationError",
    "create_app",
    "run_application",
]
