"""A NATS server of a test's own, that it may kill, restart and give users to."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from lexigram.testing.services import do_without, free_port

START_SECONDS = 60.0  # a hang guard; a start takes a tenth of a second


class OwnServer:
    """``server.start()``, ``server.stop(signal.SIGKILL)``; data and log under ``folder``."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = Path(folder)
        self.port = free_port()
        self._config = self.folder / "nats.conf"
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream: {{store_dir: "{self.folder / "data"}"}}\n{config}\n'
        )
        self._process = None

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def start(self):
        with (self.folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["nats-server", "-c", str(self._config)], stdout=log, stderr=log
            )
        until = time.monotonic() + START_SECONDS
        while not self._listens():
            assert self._process.poll() is None, (self.folder / "nats.log").read_text()
            assert time.monotonic() < until, "nats-server does not start"
            time.sleep(0.02)
        return self

    def _listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=0.5).close()
        except OSError:
            return False
        return True

    def stop(self, how=signal.SIGKILL):
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


@pytest.fixture
def nats_server(tmp_path):
    """Makes servers: ``nats_server(config="…")``; all are gone afterwards."""
    if shutil.which("nats-server") is None:
        do_without("nats-server is not installed here, so the test cannot start its own server")
    made = []

    def start(config=""):
        folder = tmp_path / f"nats{len(made)}"
        folder.mkdir()
        made.append(OwnServer(folder, config))
        return made[-1].start()

    yield start
    for server in made:
        server.stop()
