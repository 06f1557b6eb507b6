"""A step of a saga, an item of a bulk operation, a transition of a state machine."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator

from harness import Plan, Section, Target, Work, measure

from lexigram.contracts.core.result import Ok
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.bulk import BulkOperation, BulkOperationConfig, SqlBulkCheckpoints
from lexigram.workflow.saga import AbstractSaga, SagaStep, SqlSagaStore
from lexigram.workflow.state import DatabaseStatePersistence, State, StateMachine, Transition
from workflow.graphs import case

N = 100
ITEMS = list(range(10_000))
NOTE = (
    "Saga: 100 steps that return Ok, time per step; the plain loop awaits the same functions and "
    "keeps a list of those done. Bulk: 10,000 items in batches of 100 given back as they are, time "
    "per item; the plain loop awaits batch by batch, gather runs all of them behind a semaphore of "
    "five and gives nothing before the end. Transition: there and back between two states without "
    "hooks; transitions and python-statemachine are used as their documentation shows."
)
KEPT_NOTE = (
    "On SQLite (WAL, synchronous=NORMAL); every step, batch or transition is committed before the "
    "next one begins. The peers above keep nothing."
)


async def act():
    return Ok(None)


class Long(AbstractSaga):
    count = 0

    def __init__(self, store=None):
        super().__init__(store)
        Long.count += 1
        self.id = f"saga-{Long.count}"
        self._steps = STEPS  # made once, as the plain loop has its functions

    def get_id(self):
        return self.id


STEPS = [SagaStep(f"s{number}", act, act) for number in range(N)]


def our_saga(store=None):
    async def run():
        assert (await Long(store).execute()).is_ok()

    return run


async def plain_saga():
    done = []
    for step in STEPS:
        if (await step.action()).is_ok():
            done.append(step.name)
    assert len(done) == N


async def process(items):
    return items


def our_bulk(settings=None, store=None):
    config = BulkOperationConfig(batch_size=100, max_concurrency=5)
    count = iter(range(10**9))

    async def run():
        operation = BulkOperation(config, process, checkpoint_store=store)
        total = 0
        async for batch in operation.execute(ITEMS, operation_id=f"op-{next(count)}"):
            total += len(batch.results)
        assert total == len(ITEMS)

    return run


async def plain_bulk():
    total = 0
    for at in range(0, len(ITEMS), 100):
        total += len(await process(ITEMS[at : at + 100]))
    assert total == len(ITEMS)


async def gathered_bulk():
    slots = asyncio.Semaphore(5)

    async def one(at):
        async with slots:
            return await process(ITEMS[at : at + 100])

    batches = await asyncio.gather(*(one(at) for at in range(0, len(ITEMS), 100)))
    assert sum(map(len, batches)) == len(ITEMS)


def machine(persistence=None, name=None):
    states = [
        State("a", {"go": Transition("go", "b")}),
        State("b", {"back": Transition("back", "a")}),
    ]
    return StateMachine(states, "a", persistence, name)


def moves(go, back, state):
    async def run():
        for _ in range(N // 2):
            if asyncio.iscoroutine(moved := go()):
                await moved
            if asyncio.iscoroutine(moved := back()):
                await moved
        assert state() == "a"

    return run


def our_machine(persistence=None, name=None):
    ours = machine(persistence, name)

    async def run():
        for _ in range(N // 2):
            await ours.transition("go")
            await ours.transition("back")
        assert ours.current_state == "a"

    return run


class Table:
    moves = {("a", "go"): "b", ("b", "back"): "a"}

    def __init__(self):
        self.state = "a"

    async def send(self, event):
        self.state = self.moves[self.state, event]


def plain_machine():
    table = Table()

    async def run():
        for _ in range(N // 2):
            await table.send("go")
            await table.send("back")
        assert table.state == "a"

    return run


def transitions_machines():
    from transitions import Machine
    from transitions.extensions.asyncio import AsyncMachine

    class Model:
        pass

    settings = {
        "states": ["a", "b"],
        "transitions": [["go", "a", "b"], ["back", "b", "a"]],
        "initial": "a",
        "auto_transitions": False,
    }
    logging.getLogger("transitions").setLevel(logging.CRITICAL)
    plain, other = Model(), Model()
    Machine(plain, **settings)
    AsyncMachine(other, **settings)
    return [
        case("transitions", moves(plain.go, plain.back, lambda: plain.state)),
        case("transitions, async", moves(other.go, other.back, lambda: other.state)),
    ]


def statemachine_cases():
    from statemachine import State as TheirState
    from statemachine import StateMachine as Theirs

    class Door(Theirs):
        a = TheirState(initial=True)
        b = TheirState()
        go = a.to(b)
        back = b.to(a)

    class AsyncDoor(Door):
        async def on_go(self):
            pass

    door = Door()
    return [case("python-statemachine", moves(door.go, door.back, lambda: _name(door)))], AsyncDoor


def _name(door):
    return next(iter(door.configuration)).id


async def parts(plan: Plan) -> AsyncIterator[Section]:
    saga = Work(
        "a step of a saga, no store",
        "µs",
        "lexigram",
        [case("plain loop", plain_saga, loops=N * 20), case("lexigram", our_saga(), loops=N * 10)],
        {"lexigram": Target(6)},
    )
    many = len(ITEMS)
    bulk = Work(
        "an item, batches of 100",
        "µs",
        "lexigram",
        [
            case("plain loop", plain_bulk, many, many * 2),
            case("gather behind a semaphore", gathered_bulk, many, many * 2),
            case("lexigram", our_bulk(), many, many * 2),
        ],
        {"lexigram": Target(0.2)},
    )
    peers, async_door = statemachine_cases()
    door = async_door()
    await door.activate_initial_state()
    peers.append(case("python-statemachine, async", moves(door.go, door.back, lambda: _name(door))))
    state = Work(
        "a transition",
        "µs",
        "lexigram",
        [
            case("dict", plain_machine(), loops=N * 20),
            case("lexigram", our_machine(), loops=N * 20),
            *transitions_machines(),
            *peers,
        ],
        {"lexigram": Target(2)},
    )
    await measure([saga, bulk, state], plan, plan.few(25))
    yield Section("Sagas, bulk operations, state machines", NOTE, [saga, bulk, state])
    yield await _kept(plan)


async def _kept(plan: Plan) -> Section:
    folder = tempfile.mkdtemp()
    try:
        async with Database(f"sqlite:///{folder}/ours.db") as database:
            await upgrade(database)
            store = SqlSagaStore(database)
            persistence = DatabaseStatePersistence(database)
            works = [
                Work("a step of a saga", "µs", "lexigram", [case("lexigram", our_saga(store))]),
                Work(
                    "an item, batches of 100",
                    "µs",
                    "lexigram",
                    [case("lexigram", our_bulk(store=SqlBulkCheckpoints(database)), len(ITEMS))],
                ),
                Work(
                    "a transition",
                    "µs",
                    "lexigram",
                    [case("lexigram", our_machine(persistence, "m"))],
                ),
            ]
            await measure(works, plan, plan.few(11))
    finally:
        shutil.rmtree(folder)
    return Section("Sagas, bulk operations, state machines that are kept", KEPT_NOTE, works)
