"""The real ``lexigram queue`` beside running processes of an application, as an operator uses it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from tests import processes
from tests.processes import Popen

pytestmark = pytest.mark.timeout(900)  # many processes, each with imports of its own

SCRIPTS = Path(sys.executable).parent
SECONDS = 120  # a guard against hanging, not a promise

SHOP = """
    import os
    import sys
    from pathlib import Path

    from lexigram.app import Application
    from lexigram.di import Module, module
    from lexigram.queue import MessageConsumer, NamedQueueConfig, QueueConfig, QueueModule
    from lexigram.queue.config import SqlDriverConfig

    HERE = Path(__file__).parent
    EVENTS = NamedQueueConfig(
        name="events", driver="sql", sql=SqlDriverConfig(url=f"sqlite:///{HERE}/bus.db"),
        max_retries=1, retry_base=0.01, retry_cap=0.01,
    )


    class Shipping(MessageConsumer):
        topic = "orders"
        group = "shipping"

        async def handle(self, number: int) -> None:
            if number < 0 and not os.environ.get("FIXED"):
                raise ValueError(f"no stock of {number}")
            print("handled", number, flush=True)


    @module(imports=[QueueModule.scope(Shipping)])
    class ShopModule(Module):
        @classmethod
        async def on_module_booted(cls) -> None:
            print("receives orders", file=sys.stderr, flush=True)


    app = Application(
        "shop", modules=[QueueModule.configure(QueueConfig(backends=[EVENTS])), ShopModule]
    )
"""


def environment(**extra):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEX_", "PYTEST", "COV"))}
    return {**kept, "PATH": f"{SCRIPTS}{os.pathsep}{kept.get('PATH', '')}", **extra}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(dedent(SHOP))
    (tmp_path / "pyproject.toml").write_text('[tool.lexigram]\napp = "shop:app"\n')
    return tmp_path


@pytest.fixture
def lexigram(folder):
    def run(*arguments, **variables):
        return processes.run(
            [SCRIPTS / "lexigram", *arguments],
            cwd=folder,
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


@pytest.fixture
def queue(lexigram):
    """The document that ``lexigram queue … --json`` prints."""

    def run(*arguments):
        done = lexigram("--json", "queue", *arguments)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    return run


@pytest.fixture
def fleet(folder):
    """Starts processes of the application; what they print is in their files."""
    started = []

    def start(number=1, **variables):
        for _ in range(number):
            path = folder / f"member-{len(started)}.txt"
            with path.open("w") as file:
                process = Popen(
                    [SCRIPTS / "lexigram", "run"],
                    cwd=folder,
                    env=environment(**variables),
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            started.append((process, path))

    def printed():
        return "".join(path.read_text() for _, path in started)

    def check():
        """Fail when a process ended by itself: nothing is worth waiting for then."""
        ended = [process.returncode for process, _ in started if process.poll() not in (None, 0)]
        assert not ended, f"a process ended with {ended}\n{report()}"

    def report():
        """The exit code and the complete output of every process."""
        return "\n".join(
            f"{path.name}, exit code {process.poll()}:\n{path.read_text()}"
            for process, path in started
        )

    def wait(predicate):
        end = time.monotonic() + SECONDS
        while not predicate():
            check()
            assert time.monotonic() < end, f"waited for {SECONDS} s\n{report()}"
            time.sleep(0.05)

    def stop():
        for process, _ in started:
            process.send_signal(signal.SIGTERM)
        for process, _ in started:
            process.wait(SECONDS)

    start.printed, start.stop, start.wait = printed, stop, wait
    yield start
    for process, _ in started:
        process.kill()
        process.wait()


def until(predicate):
    end = time.monotonic() + SECONDS
    while not predicate():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def row(queue):
    (found,) = queue("ls")["groups"]
    return found


def test_an_operator_pauses_and_resumes_a_running_fleet(queue, fleet):
    fleet(2)
    fleet.wait(lambda: fleet.printed().count("receives orders") == 2)
    assert queue("publish", "orders", "1")["topic"] == "orders"
    fleet.wait(lambda: "handled 1\n" in fleet.printed())
    paused = queue("pause", "orders")
    assert paused == {"topic": "orders", "groups": ["shipping"], "state": "paused"}
    time.sleep(1.1)  # what a pause promises: seen by all within a second
    queue("publish", "orders", "2")
    found = row(queue)
    assert (found["state"], found["depth"]) == ("paused", 1)
    fleet.stop()
    assert "handled 2" not in fleet.printed()
    fleet(1)  # it outlives the processes
    fleet.wait(lambda: fleet.printed().count("receives orders") == 3)
    time.sleep(1.0)  # long enough for a consumer that would not see the pause
    assert "handled 2" not in fleet.printed()
    queue("resume", "orders")
    fleet.wait(lambda: "handled 2\n" in fleet.printed())


def test_a_redriven_message_is_handled_by_the_fleet_that_has_the_fix(queue, fleet):
    fleet(1)
    queue("publish", "--id", "bad", "--", "orders", "-7")
    fleet.wait(lambda: row(queue)["dead_letters"] == 1)
    (letter,) = queue("dlq", "show", "bad")["dead letters"]
    assert (letter["payload"], letter["attempts"]) == (-7, 2)
    assert "ValueError: no stock of -7" in letter["traceback"]
    fleet.stop()
    fleet(1, FIXED="1")
    assert queue("dlq", "redrive", "bad") == {"redriven": 1}
    fleet.wait(lambda: "handled -7\n" in fleet.printed())
    assert row(queue)["dead_letters"] == 0


def test_a_tail_ended_by_ctrl_c_removes_its_group(queue, folder):
    queue("ls")
    tail = Popen(
        [SCRIPTS / "lexigram", "queue", "tail", "orders", "--json"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(queue("ls")["groups"]) == 2)
    queue("publish", "orders", "5", "--id", "seen")
    assert json.loads(tail.stdout.readline())["id"] == "seen"
    tail.send_signal(signal.SIGINT)
    _, err = tail.communicate(timeout=SECONDS)
    assert tail.returncode == 130, err
    assert (row(queue)["group"], row(queue)["depth"]) == ("shipping", 1)


def test_the_generated_consumer_runs(lexigram, folder, fleet, queue):
    made = lexigram(
        "generate", "message_consumer", "OrderPlaced", "--fields", "number:int, items:list[str]"
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout == "src/consumers/order_placed_consumer.py\n"
    (folder / "src/consumers/__init__.py").write_text("")
    text = (folder / "shop.py").read_text()
    text = text.replace(
        "class Shipping",
        "from consumers.order_placed_consumer import OrderPlacedConsumer\n\n\nclass Shipping",
    )
    text = text.replace("scope(Shipping)", "scope(Shipping, OrderPlacedConsumer)")
    (folder / "shop.py").write_text(text)
    fleet(1)
    queue("publish", "order_placed", '{"number": 3, "items": ["tea"]}')
    fleet.wait(
        lambda: "OrderPlacedConsumer OrderPlacedMessage(number=3, items=['tea'])" in fleet.printed()
    )


def test_doctor_and_health_look_at_the_brokers(lexigram, folder):
    sound = lexigram("doctor", "--json")
    checks = {one["check"]: one for one in json.loads(sound.stdout)["checks"]}
    assert (checks["broker_url_configured"]["status"]) == "ok"
    assert "events (sql)" in checks["broker_url_configured"]["message"]
    text = (folder / "shop.py").read_text()
    broken = text.replace('driver="sql"', 'driver="redis", required=False')
    broken = broken.replace(
        'sql=SqlDriverConfig(url=f"sqlite:///{HERE}/bus.db")',
        "redis=RedisDriverConfig(url='redis://127.0.0.1:1/0')",
    )
    broken = broken.replace("import SqlDriverConfig", "import RedisDriverConfig")
    (folder / "shop.py").write_text(broken)
    asked = lexigram("inspect", "health", "--json")
    assert asked.returncode == 4, asked.stderr
    parts = {one["component"]: one for one in json.loads(asked.stdout)["components"]}
    assert parts["message_broker_connection"]["status"] == "unhealthy"
    assert "events" in parts["message_broker_connection"]["error"]
    (folder / "shop.py").write_text(text.replace('driver="sql"', 'driver="carrier_pigeon"'))
    examined = lexigram("doctor", "--json")
    checks = {one["check"]: one for one in json.loads(examined.stdout)["checks"]}
    assert checks["broker_url_configured"]["status"] == "error"
    assert "unknown driver 'carrier_pigeon'" in checks["broker_url_configured"]["message"]
