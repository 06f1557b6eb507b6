"""``lexigram queue`` on a bus in a database file: what it shows, changes and refuses."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from lexigram.cli.main import main
from lexigram.contracts.queue import BusMessage
from lexigram.queue import BusOptions, RetryPolicy, SqlQueue
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.testing import wait_until

SHOP = """
from pathlib import Path

from lexigram.app import Application
from lexigram.di import Module, module
from lexigram.queue import MessageConsumer, NamedQueueConfig, QueueConfig, QueueModule
from lexigram.queue.config import SqlDriverConfig
from lexigram.sql import SqlConfig, SqlModule

FILE = Path(__file__).parent / "bus.db"
HANDLED = []


class Shipping(MessageConsumer):
    topic = "orders"
    group = "shipping"

    async def handle(self, payload: object) -> None:
        HANDLED.append(payload)


@module(imports=[QueueModule.scope(Shipping)])
class ShopModule(Module):
    pass


def create() -> Application:
    events = NamedQueueConfig(name="events", driver="sql", sql=SqlDriverConfig(url=f"sqlite:///{FILE}"))
    return Application("shop", modules=[QueueModule.configure(QueueConfig(backends=[events])), ShopModule])


def in_memory() -> Application:
    return Application("shop", modules=[QueueModule.stub(), ShopModule])


def plain() -> Application:
    return Application("plain")
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def folder(tmp_path, monkeypatch, migrated_file):
    """The current folder, with an application and its database."""
    for name in [name for name in os.environ if name.startswith("LEX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    shutil.copy(migrated_file, tmp_path / "bus.db")
    (tmp_path / "shop.py").write_text(SHOP)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def queue(folder, capsys):
    """Run ``lexigram queue`` in this process."""

    def run(*arguments, app="shop:create"):
        capsys.readouterr()
        code = main(["queue", *arguments, "--app", app])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture
def bus(folder):
    """Do something with the bus from outside the application: ``bus(work)``."""
    options = BusOptions(retry=RetryPolicy(base=0.01, cap=0.01))

    def run(work):
        async def call():
            async with SqlQueue(f"sqlite:///{folder}/bus.db", options=options) as opened:
                return await work(opened)

        return anyio.run(call)

    return run


@pytest.fixture
def dead(bus):
    """Three dead letters of the group, and one of another topic."""

    async def work(opened):
        async def refuse(message):
            raise ValueError(f"no stock of {message.payload}")

        for topic in ("orders", "returns"):
            await opened.subscribe(topic, refuse, group="shipping")
        for number in range(4):
            message = BusMessage(id=f"m{number}", payload=number, max_retries=0)
            await opened.publish("returns" if number == 3 else "orders", message)
        letters = DeadLetters(opened)

        async def are_all_dead():
            return len(await letters.list()) == 4

        await wait_until(are_all_dead)

    bus(work)


def groups(queue):
    return {(row["topic"], row["group"]): row for row in queue("ls", "--json").data["groups"]}


def test_ls_shows_every_group_and_handles_nothing(queue, bus):
    sent = queue("publish", "orders", '{"n": 1}')
    assert sent.code == 0, sent.err
    assert queue("publish", "orders", "plain text", "--json").data["backend"] == "events"
    row = groups(queue)["orders", "shipping"]
    assert (row["backend"], row["depth"], row["lag"]) == ("events", 2, 2)
    assert (row["dead_letters"], row["state"]) == (0, "running")
    assert "shop" in sys.modules
    assert sys.modules["shop"].HANDLED == []
    shown = queue("ls").out.splitlines()
    assert shown[0].split() == [
        "BACKEND",
        "TOPIC",
        "GROUP",
        "DEPTH",
        "LAG",
        "DEAD",
        "LETTERS",
        "STATE",
    ]
    assert shown[1].split() == ["events", "orders", "shipping", "2", "2", "0", "running"]


def test_peek_shows_whole_messages_and_takes_none(queue):
    arguments = ["--id", "a", "-H", "tenant=7", "--priority", "3", "--ttl", "60"]
    assert queue("publish", "orders", '{"n": 1}', *arguments).out == "a\n"
    for _ in range(2):
        (message,) = queue("peek", "orders", "--json").data["messages"]
        assert (message["id"], message["payload"]) == ("a", {"n": 1})
        assert (message["headers"]["tenant"], message["priority"], message["ttl"]) == ("7", 3, 60)
    assert groups(queue)["orders", "shipping"]["depth"] == 1


def test_a_payload_may_come_from_standard_input(queue, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO('["from", "stdin"]'))
    assert queue("publish", "orders", "-").code == 0
    assert queue("peek", "orders", "--json").data["messages"][0]["payload"] == ["from", "stdin"]


@pytest.mark.parametrize(
    ("topic", "option", "field"),
    [
        ("*", (), "topic"),
        ("orders", ("--id", ""), "id"),
        ("orders", ("--priority", "1000"), "priority"),
        ("orders", ("--priority", str(2**63)), "priority"),
        ("orders", ("--delay", "inf"), "delay"),
        ("orders", ("--delay", "1e300"), "delay"),
        ("orders", ("--ttl", "nan"), "ttl"),
        ("orders", ("--header", "a=b\nc"), "header a"),
        ("orders", ("--ordering-key", "x" * 300), "ordering-key"),
        # bytes of a command line that are not UTF-8
        ("a\udcff", (), "topic"),
        ("orders", ("--id", "\udcff"), "id"),
        ("orders", ("--header", "a=\udcff"), "header a"),
        ("orders", ("--header", "\udcff=a"), "header name"),
        ("orders", ("--header", "deliver-at=inf"), "deliver-at"),
        ("orders.>", (), "topic"),
        ("o" * 256, (), "topic"),
        ("orders", ("--delay", "nan"), "delay"),
    ],
)
def test_a_message_out_of_bounds_is_a_wrong_command_line_and_starts_nothing(
    queue, topic, option, field
):
    sys.modules.pop("shop", None)
    refused = queue("publish", topic, "1", *option)
    assert refused.code == 2, refused.err
    assert field in refused.err
    assert "shop" not in sys.modules


def test_a_delayed_message_counts_as_depth_and_not_as_lag(queue):
    queue("publish", "orders", "1", "--delay", "3600")
    row = groups(queue)["orders", "shipping"]
    assert (row["depth"], row["lag"]) == (1, 0)


def test_lag_puts_the_furthest_behind_first_and_can_fail_a_probe(queue):
    queue("publish", "orders", "1")
    data = queue("lag", "--json").data
    assert (data["total"], data["groups"][0]["lag"]) == (1, 1)
    assert queue("lag", "--max", "1").code == 0
    assert queue("lag", "--max", "0").code == 4


def test_pause_is_kept_by_the_broker_and_holds_every_process(queue, bus):
    queue("publish", "orders", "1")
    assert queue("pause", "orders").out == "orders shipping is paused\n"
    assert groups(queue)["orders", "shipping"]["state"] == "paused"

    async def receive(opened):
        return await opened.driver.receive("orders", "shipping", limit=1, wait=0.3)

    assert bus(receive) == []
    assert queue("resume", "orders", "--group", "shipping", "--json").data["state"] == "running"
    assert len(bus(receive)) == 1


def test_purge_drops_what_waits_and_wants_a_yes(queue):
    queue("publish", "orders", "1")
    refused = queue("purge", "orders")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert groups(queue)["orders", "shipping"]["depth"] == 1
    assert queue("purge", "orders", "--yes").out == "purged 1 messages of shipping\n"
    assert queue("purge", "orders", "--yes", "--json").data["purged"] == 0


def test_tail_ends_by_itself_and_leaves_messages_and_groups_alone(queue):
    queue("publish", "orders", "1")
    watched = queue("tail", "orders", "--seconds", "0.3", "--json")
    assert (watched.code, watched.out) == (0, "")
    assert list(groups(queue)) == [("orders", "shipping")]
    assert groups(queue)["orders", "shipping"]["depth"] == 1


def test_bench_is_bounded_and_leaves_nothing(queue):
    told = queue("bench", "--messages", "200", "--size", "10", "--json")
    assert told.code == 0, told.err
    assert (told.data["published"], told.data["handled"]) == (200, 200)
    assert told.data["latency_ms_p99"] >= told.data["latency_ms_p50"] > 0
    short = queue("bench", "--messages", "1000000", "--seconds", "0.5", "--json").data
    assert 0 < short["published"] < 1_000_000
    assert list(groups(queue)) == [("orders", "shipping")]


def test_bench_works_in_memory_too(queue):
    told = queue("bench", "-n", "100", "--json", app="shop:in_memory").data
    assert (told["driver"], told["handled"]) == ("memory", 100)


def test_dead_letters_are_listed_by_filter_and_shown_whole(queue, dead):
    rows = queue("dlq", "ls", "--json").data["dead letters"]
    assert [row["id"] for row in rows] == ["m0", "m1", "m2", "m3"]
    assert rows[0]["error"] == "ValueError: no stock of 0"
    chosen = queue("dlq", "ls", "--topic", "orders", "--error", "of 1", "--json").data
    assert [row["id"] for row in chosen["dead letters"]] == ["m1"]
    assert queue("dlq", "ls", "--reason", "poison").out == "no dead letters\n"
    assert queue("dlq", "ls", "--reason", "bad luck").code == 2
    shown = queue("dlq", "show", "m2").out
    assert "reason: retries_exhausted" in shown
    assert "payload: 2" in shown
    assert "Traceback" in shown
    missing = queue("dlq", "show", "nobody")
    assert (missing.code, "dlq ls" in missing.err) == (2, True)


def test_redrive_takes_ids_a_filter_or_all_and_never_guesses(queue, dead):
    assert queue("dlq", "redrive").code == 2
    assert queue("dlq", "redrive", "m0", "--all").code == 2
    assert queue("dlq", "redrive", "m0").out == "1 dead letters redriven\n"
    assert queue("dlq", "redrive", "unknown").code == 1
    data = queue("dlq", "redrive", "--topic", "orders", "--rate", "100", "--json").data
    assert data == {"redriven": 2}
    assert groups(queue)["orders", "shipping"]["lag"] == 3
    assert queue("dlq", "redrive", "--all", "--limit", "5", "--json").data == {"redriven": 1}
    assert queue("dlq", "redrive", "--all", "--json").data == {"redriven": 0}


def test_dead_letters_are_dropped_for_good_with_a_yes(queue, dead):
    assert queue("dlq", "purge", "--all").code == 2
    assert queue("dlq", "purge", "m0", "--yes", "--json").data == {"purged": 1}
    assert queue("dlq", "purge", "--all", "--yes").out == "3 dead letters purged\n"
    assert queue("dlq", "ls").out == "no dead letters\n"


@pytest.mark.parametrize(
    "command",
    [
        ["publish", "orders", "1"],
        ["peek", "orders"],
        ["tail", "orders"],
        ["pause", "orders"],
        ["purge", "orders", "--yes"],
        ["dlq", "ls"],
        ["dlq", "redrive", "--all"],
    ],
)
def test_a_bus_in_memory_is_refused_by_name(queue, command):
    refused = queue(*command, app="shop:in_memory")
    assert refused.code == 2
    assert "backend default keeps its messages in the memory of the process" in refused.err


def test_ls_of_a_bus_in_memory_shows_no_figures_it_cannot_know(queue):
    shown = queue("ls", "--json", app="shop:in_memory")
    assert "in memory" in shown.err
    (row,) = shown.data["groups"]
    assert (row["depth"], row["lag"], row["state"]) == (None, None, "unknown")


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["ls", "--backend", "audit"], 1, "unknown backend 'audit'"),
        (["peek", "nothing"], 1, "topic nothing has no group"),
        (["pause", "orders", "--group", "x"], 1, "topic orders has no group x"),
        (["tail", "nothing"], 1, "has no consumer group yet"),
        (["publish", "orders", "1", "-H", "novalue"], 2, "NAME=VALUE"),
        (["lss"], 2, "No such command"),
    ],
)
def test_what_cannot_be_done_is_said_clearly(queue, command, code, text):
    refused = queue(*command)
    assert (refused.code, text in refused.err) == (code, True), refused.err


def test_an_application_without_a_bus_is_told_how_to_get_one(queue):
    refused = queue("ls", app="shop:plain")
    assert (refused.code, "QueueModule" in refused.err) == (2, True)
