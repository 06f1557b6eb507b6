"""Where the tests of the SQS driver run: moto's server as a process of its own, or the real SQS.

With LEX_TEST_SQS_URL (such as https://sqs.eu-west-1.amazonaws.com/) the same suites run on the
service, with the credentials AWS clients find; LEX_TEST_SQS_REGION is its region.
"""

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.queue_drivers import make

from lexigram.queue.backends.sqs import SQSDriver
from lexigram.queue.config import SQSDriverConfig

ROOT = Path(__file__).parents[3]
REAL = os.environ.get("LEX_TEST_SQS_URL")
LEASE = 5.0 if REAL else 3.0


class SQSDouble:
    """``with SQSDouble() as sqs: sqs.url``. ``fault("SendMessageBatch", 2)``: the next two fail."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.doubles.sqs"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.port = json.loads(self._process.stdout.readline())["port"]
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self):
        return {
            "endpoint_url": self.url,
            "access_key_id": "test",
            "secret_access_key": "test",
            "groups_refresh": 0.0,
        }

    def fault(self, action, times, status=503, code="ServiceUnavailable"):
        """One action; the faults of others end."""
        self.faults({action: times}, status, code)

    def faults(self, times, status=503, code="ServiceUnavailable"):
        """How often each action fails, from now on."""
        found = [
            {"action": action, "times": often, "status": status, "code": code}
            for action, often in times.items()
        ]
        asked = urllib.request.Request(f"{self.url}/_faults", json.dumps(found).encode())
        urllib.request.urlopen(asked).close()


@pytest.fixture(scope="session")
def sqs():
    with settings() as found:
        yield found


@contextmanager
def settings():
    """The connection settings of a driver: of moto, unless the real service is asked for."""
    if REAL:
        yield {"endpoint_url": REAL, "region": os.environ.get("LEX_TEST_SQS_REGION", "us-east-1")}
        return
    with SQSDouble() as double:
        yield double.settings


def place_name():
    return f"t{os.getpid() % 10**6}-{uuid4().hex[:8]}"


def driver_on(settings, prefix, **more):
    settings = {**settings, "prefix": prefix, "visibility_timeout": LEASE, **more}
    return make(SQSDriver, SQSDriverConfig, **settings)


async def clear(driver):
    """Delete all queues of the prefix, keepers too."""
    await driver.connect()
    client = driver._space.asking
    for url in (await client.list_queues(QueueNamePrefix=driver.prefix)).get("QueueUrls", []):
        await client.delete_queue(QueueUrl=url)
    await driver.close()
