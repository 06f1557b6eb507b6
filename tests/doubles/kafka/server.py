"""Kafka without a JVM: librdkafka's mock cluster in a process of its own.

The brokers speak Kafka's protocol over TCP, with consumer groups, heartbeats, sessions and commits
with metadata. What they have not: topics are made by being asked for (always four partitions), not
by an administrator, and are never deleted; nothing is written to disk; nobody signs in; a fetch
waits its whole time even when a record comes.

Their groups are harder on a member than those of brokers: a round of joining always lasts a second
less than a session; commits are refused in it, where brokers take them until all have joined; who
has not joined again by then is thrown out, where brokers wait for it; and who asks for its part
after the leader has told all parts is refused and begins a new round. So sessions here are short
enough not to wait for long, and long enough that a busy machine gets everybody in; and answers
about metadata are slow (``cluster.py`` says why).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REAL = os.environ.get("LEX_TEST_KAFKA")
CLUSTER = Path(__file__).with_name("cluster.py")


class KafkaDouble:
    """``with KafkaDouble() as double``: brokers that are gone at its end."""

    def __init__(self, brokers=1):
        self._brokers = brokers

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, str(CLUSTER), str(self._brokers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.servers = self._process.stdout.readline().strip()
        assert self.servers, "the mock cluster did not start"
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def command(self, *words):
        """See ``cluster.py``."""
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer == "ok", f"{words}: {answer}"


@pytest.fixture(scope="session")
def kafka_servers():
    """Bootstrap servers: of the double, unless LEX_TEST_KAFKA names real ones."""
    if REAL:
        yield REAL
        return
    with KafkaDouble() as double:
        yield double.servers
