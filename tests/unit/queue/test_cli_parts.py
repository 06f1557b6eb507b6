"""The generator, the checks and the contributor of the command line, each by itself."""

import importlib
import subprocess
import sys

import pytest

from lexigram.cli.contributors import Contributors
from lexigram.cli.errors import CliError
from lexigram.contracts.cli import CliContributorProtocol, DoctorStatus
from lexigram.contracts.core.health import HealthStatus
from lexigram.queue.cli.checks import check_broker_connection
from lexigram.queue.cli.contributor import QueueCliContributor
from lexigram.queue.cli.doctor import check_broker_configured
from lexigram.queue.cli.generators.message_consumer import MessageConsumerGenerator

USE_IT = """
import anyio
from lexigram.app import Application
from lexigram.contracts.queue import BusMessage, QueueProtocol
from lexigram.di import Module, module
from lexigram.queue import QueueModule
from order_placed_consumer import OrderPlacedConsumer

done = anyio.Event()

class Noticed(OrderPlacedConsumer):
    async def handle(self, message):
        await super().handle(message)
        done.set()

@module(imports=[QueueModule.scope(Noticed)])
class Shop(Module):
    pass

async def main():
    async with Application("shop", modules=[QueueModule.stub(), Shop]) as app:
        payload = {"message_type": "x", "payload": {"n": 1}}
        await app.container.get(QueueProtocol).publish("order_placed", BusMessage(payload=payload))
        await done.wait()

anyio.run(main)
"""


@pytest.mark.parametrize(
    "name", ["OrderPlaced", "order_placed", "order-placed", "OrderPlacedConsumer"]
)
def test_a_name_becomes_a_file_and_classes(name):
    ((path, text),) = MessageConsumerGenerator().generate(name).items()
    assert path == "order_placed_consumer.py"
    assert "class OrderPlacedConsumer(MessageConsumer):" in text
    assert "topic = 'order_placed'" in text


def test_the_written_file_runs_and_handles_a_message(tmp_path):
    files = MessageConsumerGenerator().generate("OrderPlaced")
    files["use_it.py"] = USE_IT.replace(
        "async def handle(self, message)", "async def handle(self, message: OrderPlacedMessage)"
    ).replace("import OrderPlacedConsumer", "import OrderPlacedConsumer, OrderPlacedMessage")
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "use_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "OrderPlacedConsumer OrderPlacedMessage(message_type='x', payload={'n': 1})\n"
    )


def test_options_are_obeyed():
    generator = MessageConsumerGenerator(fields_str="number:int")
    text = generator.generate("Order", queue="orders.placed", broker="audit")["order_consumer.py"]
    assert "topic = 'orders.placed'" in text
    assert "backend = 'audit'" in text
    assert "    number: int\n" in text
    compile(text, "order_consumer.py", "exec")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("", None),
        ("7up", None),
        ("class", None),
        ("Order", "number"),
        ("Order", "n:int]"),
        ("Order", "class:int"),
        ("Order", "n:" + "list[" * 5_000),
        ("Order", "n:" + "-" * 200_000 + "1"),
        ("Order", "n:\udc80"),
        ("Order", "n:" + " " * 50_000 + "]"),
    ],
)
def test_what_cannot_be_code_is_refused(name, fields):
    with pytest.raises(CliError):
        MessageConsumerGenerator(fields_str=fields).generate(name)


def test_the_contributor_is_found_whole_and_all_it_names_exists():
    contributor = QueueCliContributor()
    assert isinstance(contributor, CliContributorProtocol)
    assert contributor.contributor_id == "queue"
    found = Contributors.discover()
    assert "queue" in found.names
    assert not [one for one in found.broken if one.contributor == "queue"]
    for path in (path for owner, path in found.paths() if owner == "queue"):
        module, _, attribute = path.partition(":")
        assert hasattr(importlib.import_module(module), attribute)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda text: (tmp_path / "application.yaml").write_text(text)


@pytest.mark.parametrize(
    ("backends", "status", "text"),
    [
        ("[]", DoctorStatus.WARNING, "no backend"),
        ("[{name: a, driver: sql}]", DoctorStatus.OK, "a (sql)"),
        ("[{name: a, driver: memory}]", DoctorStatus.WARNING, "ends with the process"),
        ("[{name: a, driver: redis}]", DoctorStatus.WARNING, "no address"),
        ("[{name: a, driver: pigeon}]", DoctorStatus.ERROR, "unknown driver 'pigeon'"),
    ],
)
def test_the_doctor_reads_the_configuration_of_this_folder(write, backends, status, text):
    write(f"queue:\n  backends: {backends}\n")
    found = check_broker_configured()
    assert (found.status, text in found.message) == (status, True), found


def test_the_doctor_misses_a_library_that_is_not_installed(write, monkeypatch):
    write("queue:\n  backends: [{name: a, driver: nats, nats: {url: 'nats://x'}}]\n")
    monkeypatch.setattr("lexigram.cli.installed._is_installed", lambda name: name != "nats-py")
    found = check_broker_configured()
    assert found.status is DoctorStatus.ERROR
    assert 'pip install "lexigram-queue[nats]"' in found.message


@pytest.mark.anyio
async def test_a_broker_out_of_reach_is_unhealthy_and_one_that_answers_is_healthy(write, tmp_path):
    url = f"sqlite:///{tmp_path}/bus.db"
    good = f"{{name: good, driver: sql, sql: {{url: '{url}'}}}}"
    bad = "{name: bad, driver: redis, redis: {url: 'redis://127.0.0.1:1/0'}}"
    write(f"queue:\n  backends: [{good}]\n")
    assert (await check_broker_connection()).status is HealthStatus.HEALTHY
    write(f"queue:\n  backends: [{good}, {bad}]\n")
    found = await check_broker_connection()
    assert found.status is HealthStatus.UNHEALTHY
    assert found.details == {"good": "healthy", "bad": "unhealthy"}
    assert found.error.startswith("bad: ")


@pytest.mark.anyio
async def test_without_a_broker_nothing_is_checked(write):
    write("queue:\n  backends: [{name: a}]\n")
    found = await check_broker_connection()
    assert (found.status, "nothing" in found.message) == (HealthStatus.HEALTHY, True)
