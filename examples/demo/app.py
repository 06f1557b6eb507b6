"""The application of the demo: the embedded one, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from lexigram.ai.workers.cli.embedded import FOLDER, create_embedded_application
from lexigram.app import Application

DATA = Path(FOLDER) / "demo"


def create() -> Application:
    """SQLite, blobs and LanceDB below ``.lexigram/demo``."""
    return create_embedded_application(DATA)
