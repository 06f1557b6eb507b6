"""Runs the double as a process of its own: ``with ServiceBusDouble() as bus: bus.connection_str``."""

import importlib.util
import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.doubles.servicebus.tokens import KEY, KEY_NAME

from lexigram.testing.services import do_without

ROOT = Path(__file__).parents[3]
START_SECONDS = 20.0  # a hang guard


def demand_proton():
    """Skip a module where python-qpid-proton is missing; CI, which must have it, fails there."""
    if importlib.util.find_spec("proton") is not None:
        return
    try:
        do_without("the double of Service Bus needs python-qpid-proton (dependency group doubles)")
    except pytest.skip.Exception as skipped:
        pytest.skip(str(skipped), allow_module_level=True)


class ServiceBusDouble:
    """One namespace. ``fault(busy=2)`` makes the next two sends fail, and so on."""

    def __init__(self, tier="Standard"):
        self._tier = tier

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.doubles.servicebus", self._tier],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        ports = json.loads(self._process.stdout.readline())
        self.amqp_port, self.http_port = ports["amqp"], ports["http"]
        until = time.monotonic() + START_SECONDS
        while not _listens(self.amqp_port):
            assert self._process.poll() is None, "the double died"
            assert time.monotonic() < until, "the double does not start"
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    @property
    def connection_str(self):
        return self.connection(self.amqp_port)

    @property
    def management_str(self):
        return self.connection(self.http_port)

    @staticmethod
    def connection(port, key=KEY):
        return (
            f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={KEY_NAME};"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
        )

    def fault(self, **faults):
        """How many are refused: busy, full: sends; busy_readers: links that receive;
        busy_requests: by lock token; throttled + status: HTTP. Once: disconnect: all connections;
        cut_readers: links that receive.
        """
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}/$double/faults",
            data=json.dumps(faults).encode(),
            method="POST",
        )
        urllib.request.urlopen(request, timeout=5).read()


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True
