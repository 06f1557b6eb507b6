"""A Redis of one test alone, which it may stop, kill and start again; keeps what it confirmed."""

import shutil
import socket
import subprocess
import time

from lexigram.testing.services import do_without, free_port

START_SECONDS = 60.0  # a hang guard; a start takes a tenth of a second


class RedisServer:
    def __init__(self, folder, *arguments):
        self.folder, self.arguments = folder, arguments
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process = None

    def start(self):
        self.folder.mkdir(exist_ok=True)
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen([*command, *self.arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self.process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.01)

    def _answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=0.5) as line:
                line.sendall(b"PING\r\n")
                return line.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def kill(self):
        """SIGKILL: nothing is written any more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def need_redis_server():
    """Skip, or fail where services are required, without a redis-server to start."""
    if shutil.which("redis-server") is None:
        do_without("redis-server is not installed here, so the test cannot start its own")
