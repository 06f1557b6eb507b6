"""The application: one module, which imports the others; its configuration lies beside it."""

from pathlib import Path

from examples.hello.desk import DeskModule
from lexigram.app import Application
from lexigram.config import load_config


def create() -> Application:
    config = load_config(path=Path(__file__).with_name("application.yaml"))
    return Application("hello", config, modules=[DeskModule])
