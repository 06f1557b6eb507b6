"""Sagas: forwards, backwards, retries, crashes, versions and owners."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crashes import Crash
from tests.retries import HOPELESS

from lexigram.clock import use
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.domain.events import DomainEvent
from lexigram.contracts.workflow import (
    SagaProtocol,
    SagaState,
    SagaVersionMismatchError,
    WorkflowNotFoundError,
)
from lexigram.hooks import HookRegistry
from lexigram.testing.fakes import FakeClock
from lexigram.workflow.hooks import WorkflowCompletedHook, WorkflowStateTransitionedHook
from lexigram.workflow.saga import (
    AbstractSaga,
    InMemorySagaStore,
    SagaBusyError,
    SagaDefinitionError,
    SagaError,
    SagaStep,
    saga_step,
)
from lexigram.workflow.saga.steps import marked_step_names

pytestmark = pytest.mark.anyio


class World:
    """What actions did, and where they fail."""

    def __init__(self, *failing, crash_at=None, crash_after=False):
        self.log = []
        self.failing = list(failing)
        self.crash_at = crash_at
        self.crash_after = crash_after

    async def act(self, what):
        is_last = self.crash_at == len(self.log)
        if is_last and not self.crash_after:
            raise Crash
        self.log.append(what)
        if is_last:
            raise Crash
        if what in self.failing:
            raise KeyError(what)
        return Ok(what)


class Trip(AbstractSaga):
    def __init__(self, world, store=None, count=3, **settings):
        super().__init__(store, **settings)
        self.world = world
        self.seen = []
        for number in range(count):
            self.add_step(self.step(f"s{number}"))

    def step(self, name, **settings):
        async def action():
            self.seen.append(name)
            return await self.world.act(f"+{name}")

        async def compensation():
            return await self.world.act(f"-{name}")

        settings = {"retry_delay": 0, "max_retries": 0, **settings}
        return SagaStep(name, action, settings.pop("compensation", compensation), **settings)

    def get_id(self):
        return "trip"

    def snapshot(self):
        return {"seen": self.seen}

    def restore(self, snapshot):
        self.seen = list(snapshot.get("seen", []))


class PlainStore:
    """A user's store with the three methods of the contract."""

    def __init__(self):
        self.rows = {}
        self.saves = []

    async def save(self, saga_id, state, data):
        self.saves.append((state, list(data["done"])))
        self.rows[saga_id] = (state, data)

    async def load(self, saga_id):
        return self.rows.get(saga_id)

    async def delete(self, saga_id):
        self.rows.pop(saga_id, None)


# --- forwards and backwards ---


async def test_steps_run_in_order_and_the_saga_completes():
    saga = Trip(world := World())
    assert (await saga.execute()) == Ok(None)
    assert world.log == ["+s0", "+s1", "+s2"]
    assert saga.state is SagaState.COMPLETED
    assert saga.is_completed()
    assert saga.completed_steps == ("s0", "s1", "s2")


async def test_a_raised_exception_is_a_failure_and_completed_steps_are_undone_in_reverse():
    saga = Trip(world := World("+s2"))
    error = (await saga.execute()).unwrap_err()
    assert isinstance(error, SagaError)
    assert (error.step_name, error.saga_id) == ("s2", "trip")
    assert isinstance(error.cause, KeyError)
    assert world.log == ["+s0", "+s1", "+s2", "-s1", "-s0"]
    assert saga.state is SagaState.FAILED
    assert saga.was_compensated("s0")
    assert not saga.was_compensated("s2")


async def test_an_err_is_a_failure_too_and_its_reason_is_kept():
    saga = Trip(world := World(), count=1)

    async def refuse():
        return Err("no seats")

    saga.add_step(SagaStep("seat", refuse, max_retries=0))
    error = (await saga.execute()).unwrap_err()
    assert error.reason == "no seats"
    assert error.message == "saga 'trip' failed at step 'seat': no seats"
    assert world.log == ["+s0", "-s0"]


async def test_the_defaults_of_a_step_are_those_of_the_contract():
    step = SagaStep("a", World().act)
    assert (step.max_retries, step.retry_delay, step.idempotent) == (1, 1.0, True)


async def test_one_retry_after_the_first_attempt_by_default(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr("lexigram.workflow.saga.base.anyio.sleep", sleep)
    calls = []

    async def fails_once():
        calls.append(1)
        return Err("not yet") if len(calls) == 1 else Ok(None)

    async def fails():
        calls.append(2)
        raise ValueError

    saga = Trip(World(), count=0)
    saga.add_step(SagaStep("a", fails_once))
    saga.add_step(SagaStep("b", fails, retry_delay=2.5))
    assert (await saga.execute()).is_err()
    assert calls == [1, 1, 2, 2]
    assert waits == [1.0, 2.5]


async def test_a_compensation_that_fails_is_reported_and_the_rest_is_still_undone():
    saga = Trip(world := World("+s2", "-s1"))
    error = (await saga.execute()).unwrap_err()
    assert world.log == ["+s0", "+s1", "+s2", "-s1", "-s0"]
    assert error.compensation_errors == {"s1": "KeyError: '-s1'"}
    assert "not undone: 's1'" in error.message
    assert saga.state is SagaState.FAILED


async def test_compensations_are_retried_only_when_idempotent():
    world = World("+bad", "-again", "-once")
    saga = Trip(world, count=0)
    saga.add_step(saga.step("once", max_retries=2, idempotent=False))
    saga.add_step(saga.step("again", max_retries=2))
    saga.add_step(saga.step("bad"))
    error = (await saga.execute()).unwrap_err()
    assert world.log[3:] == ["-again"] * 3 + ["-once"]
    assert list(error.compensation_errors) == ["again", "once"]


async def test_a_failed_compensation_can_be_tried_again_later():
    store = InMemorySagaStore()
    await Trip(World("+s2", "-s1"), store).execute()
    again = Trip(world := World(), store)
    assert (await again.compensate()) == Ok(None)
    assert world.log == ["-s1"]
    assert again.compensation_errors == {}
    assert (await Trip(world := World(), store).compensate()) == Ok(None)
    assert world.log == []


async def test_a_completed_saga_can_be_undone():
    store = InMemorySagaStore()
    await Trip(World(), store).execute()
    assert (await Trip(world := World(), store).compensate()) == Ok(None)
    assert world.log == ["-s2", "-s1", "-s0"]
    assert (await store.load("trip"))[0] is SagaState.FAILED


async def test_what_was_undone_by_hand_is_left_out_and_steps_without_compensation_too():
    saga = Trip(world := World("+bad"))
    saga.add_step(saga.step("mail", compensation=None))
    saga.add_step(saga.step("bad"))
    saga.mark_compensated("s1")
    await saga.execute()
    assert world.log[-2:] == ["-s2", "-s0"]
    assert saga.was_compensated("s1")


async def test_a_step_that_cannot_be_is_refused():
    saga = Trip(World())
    with pytest.raises(SagaDefinitionError, match="there is a step of this name"):
        saga.add_step(saga.step("s0"))
    with pytest.raises(ValueError, match="must not be negative"):
        saga.add_step(saga.step("n", max_retries=-1))
    with pytest.raises(SagaDefinitionError, match="async function"):
        saga.add_step(SagaStep("x", None))
    with pytest.raises(SagaDefinitionError, match="lease"):
        Trip(World(), lease=0)


async def test_methods_marked_as_steps_run_in_the_order_they_are_written():
    log = []

    class Order(AbstractSaga):
        def get_id(self):
            return "order"

        @saga_step(compensation="refund")
        async def pay(self):
            log.append("pay")
            return Ok(None)

        async def refund(self):
            log.append("refund")

        @saga_step("ship it", max_retries=0)
        async def ship(self):
            return Err("no truck")

    assert marked_step_names(Order) == ["pay", "ship it"]
    error = (await Order().execute()).unwrap_err()
    assert error.step_name == "ship it"
    assert log == ["pay", "refund"]


async def test_a_marked_step_with_an_unknown_compensation_is_refused():
    class Order(AbstractSaga):
        def get_id(self):
            return "order"

        @saga_step(compensation="refnd")
        async def pay(self): ...

    with pytest.raises(SagaDefinitionError, match="no method 'refnd'"):
        Order()


# --- stored ---


async def test_progress_is_stored_after_every_step_before_the_next_begins():
    store = PlainStore()
    saga = Trip(World(), store)
    await saga.execute()
    running, done = SagaState.RUNNING, SagaState.COMPLETED
    assert store.saves == [
        (running, []),
        (running, ["s0"]),
        (running, ["s0", "s1"]),
        (running, ["s0", "s1", "s2"]),
        (done, ["s0", "s1", "s2"]),
    ]


async def test_a_saga_goes_on_after_a_crash_with_what_its_steps_learned():
    store = InMemorySagaStore()
    with pytest.raises(Crash):
        await Trip(World(crash_at=2), store).execute()
    again = Trip(world := World(), store)
    assert (await again.resume(take_over=True)) == Ok(None)
    assert world.log == ["+s2"]
    assert again.seen == ["s0", "s1", "s2"]


async def test_execute_goes_on_too_and_ended_sagas_stay_as_they_are():
    store = PlainStore()
    with pytest.raises(Crash):
        await Trip(World(crash_at=1), store).execute()
    assert (await Trip(world := World(), store).execute()).is_ok()
    assert (await Trip(world, store).execute()).is_ok()
    assert world.log == ["+s1", "+s2"]


async def test_a_failed_saga_gives_its_error_again_and_does_nothing():
    store = PlainStore()
    first = (await Trip(World("+s1"), store).execute()).unwrap_err()
    again = (await Trip(world := World(), store).execute()).unwrap_err()
    assert world.log == []
    assert again.step_name == first.step_name == "s1"
    assert "KeyError" in again.message


async def test_a_step_that_was_cut_off_is_undone_when_it_then_fails():
    store = InMemorySagaStore()
    with pytest.raises(Crash):
        await Trip(World(crash_at=1), store).execute()
    again = Trip(world := World("+s1"), store)
    assert (await again.resume(take_over=True)).is_err()
    assert world.log == ["+s1", "-s1", "-s0"]


async def test_a_crash_while_undoing_goes_on_undoing():
    store = InMemorySagaStore()
    with pytest.raises(Crash):
        await Trip(World("+s2", crash_at=4), store).execute()
    error = (await Trip(world := World(), store).resume(take_over=True)).unwrap_err()
    assert world.log == ["-s0"]
    assert error.step_name == "s2"


async def test_a_compensation_that_must_not_run_twice_is_not_repeated_after_a_crash():
    def made(world, store):
        saga = Trip(world, store, count=0)
        saga.add_step(saga.step("card", idempotent=False))
        saga.add_step(saga.step("bad"))
        return saga

    store = InMemorySagaStore()
    with pytest.raises(Crash):
        await made(World("+bad", crash_at=2), store).execute()
    error = (await made(world := World(), store).resume(take_over=True)).unwrap_err()
    assert world.log == []
    assert "cut off" in error.compensation_errors["card"]


async def test_resuming_what_is_not_stored_says_so():
    answer = await Trip(World(), InMemorySagaStore()).resume()
    assert isinstance(answer.unwrap_err(), WorkflowNotFoundError)


async def test_a_cancelled_saga_can_be_resumed():
    store = InMemorySagaStore()
    saga = Trip(world := World(), store)

    async def waits():
        await anyio.sleep_forever()

    saga.add_step(SagaStep("wait", waits))
    async with anyio.create_task_group() as group:
        group.start_soon(saga.execute)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    (stored,) = await store.unfinished()  # given back, so it is nobody's
    assert stored.data["done"] == ["s0", "s1", "s2"]
    again = Trip(world, store)
    again.add_step(again.step("wait"))
    assert (await again.resume()).is_ok()
    assert world.log == ["+s0", "+s1", "+s2", "+wait"]


async def test_an_error_of_the_store_is_raised_and_never_taken_for_a_failed_step():
    class Broken(PlainStore):
        async def save(self, saga_id, state, data):
            if data["done"]:
                raise OSError("disk")
            await super().save(saga_id, state, data)

    saga = Trip(world := World(), Broken())
    with pytest.raises(OSError, match="disk"):
        await saga.execute()
    assert world.log == ["+s0"]


async def test_a_snapshot_that_is_not_json_is_refused_by_name():
    saga = Trip(World(), InMemorySagaStore())
    saga.snapshot = lambda: {"x": object()}
    with pytest.raises(SagaDefinitionError, match="cannot be stored"):
        await saga.execute()


async def test_a_snapshot_that_would_come_back_different_is_refused_with_its_path():
    saga = Trip(World(), InMemorySagaStore())
    saga.snapshot = lambda: {"x": [{1: 2}]}
    with pytest.raises(SagaDefinitionError) as refused:
        await saga.execute()
    assert "data['snapshot']['x'][0] has the key 1" in str(refused.value)


async def test_a_snapshot_with_numbers_beyond_64_bits_comes_back():
    store = InMemorySagaStore()
    saga = Trip(World(), store)
    saga.snapshot = lambda: {"x": 2**70}
    assert (await saga.execute()).is_ok()
    _, data = await store.load("trip")
    assert data["snapshot"] == {"x": 2**70}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_snapshot_with_a_number_that_is_none_is_refused(number):
    saga = Trip(World(), InMemorySagaStore())
    saga.snapshot = lambda: {"x": number}
    with pytest.raises(SagaDefinitionError, match="cannot be stored"):
        await saga.execute()


# --- owners ---


async def test_two_processes_cannot_run_one_saga_at_once():
    store = InMemorySagaStore()
    saga = Trip(World(), store)
    gate = anyio.Event()

    async def waits():
        await gate.wait()

    saga.add_step(SagaStep("wait", waits))
    async with anyio.create_task_group() as group:
        group.start_soon(saga.execute)
        await anyio.wait_all_tasks_blocked()
        other = Trip(world := World(), store)
        error = (await other.resume()).unwrap_err()
        assert isinstance(error, SagaBusyError)
        assert error.owner
        assert (await saga.execute()).unwrap_err().owner == "this very object"
        gate.set()
    assert world.log == []
    assert saga.state is SagaState.COMPLETED


async def test_whoever_is_taken_over_stops_before_its_next_step():
    store = InMemorySagaStore()
    first = Trip(first_world := World(), store, count=0)
    gate = anyio.Event()

    async def waits():
        await gate.wait()

    answers = []
    first.add_step(SagaStep("wait", waits))
    first.add_step(first.step("s0"))

    async def run():
        answers.append(await first.execute())

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        second = Trip(second_world := World(), store, count=0)
        second.add_step(second.step("wait"))
        second.add_step(second.step("s0"))
        assert (await second.resume(take_over=True)).is_ok()
        gate.set()
    assert isinstance(answers[0].unwrap_err(), SagaBusyError)
    assert first_world.log == []
    assert second_world.log == ["+wait", "+s0"]


async def test_a_step_longer_than_its_lease_keeps_the_saga():
    store = InMemorySagaStore()
    saga = Trip(World(), store, count=0, lease=0.03)
    renewed = anyio.Event()
    count = 0
    renew = store.renew

    async def counted(*facts):
        nonlocal count
        count += 1
        if count == 4:
            renewed.set()
        return await renew(*facts)

    store.renew = counted

    async def long():
        await renewed.wait()

    saga.add_step(SagaStep("long", long))
    with anyio.fail_after(60):
        assert (await saga.execute()).is_ok()


async def test_a_store_that_cannot_be_reached_for_a_whole_lease_ends_the_work(caplog):
    class Broken(InMemorySagaStore):
        async def renew(self, *facts):
            raise OSError("no network")

        async def release(self, *facts):
            raise OSError("still none")

    saga = Trip(World(), Broken(), count=0, lease=0.05)

    async def forever():
        await anyio.sleep_forever()

    saga.add_step(SagaStep("forever", forever))
    with anyio.fail_after(60):
        answer = await saga.execute()
    assert isinstance(answer.unwrap_err(), SagaBusyError)
    assert "not renewed: no network" in caplog.text
    assert "not given back: still none" in caplog.text


async def test_a_lost_lease_cancels_the_step_that_runs():
    store = InMemorySagaStore()
    saga = Trip(World(), store, count=0, lease=0.03)

    async def forever():
        await anyio.sleep_forever()

    saga.add_step(SagaStep("forever", forever))
    answers = []

    async def run():
        answers.append(await saga.execute())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            await store.claim("trip", "thief", 60, take_over=True)
    assert isinstance(answers[0].unwrap_err(), SagaBusyError)


async def test_after_a_crash_the_saga_is_free_when_the_lease_is_over():
    with use(FakeClock()) as clock:
        store = InMemorySagaStore()
        await store.claim("trip", "dead", 30)
        await store.save("trip", SagaState.RUNNING, {"done": ["s0"], "version": 1})
        assert (await Trip(World(), store).resume()).is_err()
        clock.advance(31)
        (found,) = await store.unfinished()
        assert found.saga_id == "trip"
        assert (await Trip(world := World(), store).resume()).is_ok()
        assert world.log == ["+s1", "+s2"]


# --- versions ---


async def test_another_version_is_refused_and_left_as_it_is():
    store = PlainStore()
    with pytest.raises(Crash):
        await Trip(World(crash_at=1), store).execute()

    class Newer(Trip):
        VERSION = 2

    error = (await Newer(world := World(), store).resume()).unwrap_err()
    assert isinstance(error, SagaVersionMismatchError)
    assert (error.expected_version, error.stored_version) == (2, 1)
    assert isinstance((await Newer(world, store)._load_state()).unwrap_err(), type(error))
    assert world.log == []
    assert store.rows["trip"][1]["version"] == 1


async def test_an_upgrade_makes_old_data_fit():
    store = InMemorySagaStore()
    with pytest.raises(Crash):
        await Trip(World(crash_at=2), store).execute()

    class Newer(Trip):
        VERSION = 2

        def __init__(self, world, store):
            super().__init__(world, store, count=0)
            for name in ("both", "s2"):
                self.add_step(self.step(name))

        def upgrade(self, stored_version, data):
            assert stored_version == 1
            return {**data, "done": ["both"]}

    assert (await Newer(world := World(), store).resume(take_over=True)).is_ok()
    assert world.log == ["+s2"]
    assert (await store.load("trip"))[1]["version"] == 2


async def test_steps_that_changed_without_a_new_version_are_refused():
    store = PlainStore()
    with pytest.raises(Crash):
        await Trip(World(crash_at=2), store).execute()
    other = Trip(world := World(), store, count=0)
    other.add_step(other.step("s1"))
    assert isinstance((await other.resume()).unwrap_err(), SagaDefinitionError)
    assert world.log == []


async def test_data_without_a_list_of_steps_is_refused():
    store = PlainStore()
    store.rows["trip"] = (SagaState.RUNNING, {"version": 1})
    answer = await Trip(World(), store).resume()
    assert "which steps are done" in answer.unwrap_err().message


# --- watched ---


async def test_every_hook_is_called_and_one_that_raises_changes_nothing(caplog):
    told = []

    def hook(name):
        async def call(context, *rest):
            told.append((name, context.step_name))
            raise RuntimeError

        return call

    saga = Trip(
        World("+s1"),
        count=2,
        on_step_executed=hook("executed"),
        on_step_failed=hook("failed"),
        on_compensation_triggered=hook("triggered"),
        on_compensation_completed=hook("completed"),
    )
    assert isinstance((await saga.execute()).unwrap_err(), SagaError)
    assert told == [
        ("executed", "s0"),
        ("failed", "s1"),
        ("triggered", "s0"),
        ("completed", "s0"),
    ]
    assert "a hook failed" in caplog.text


async def test_the_hooks_of_workflows_are_told():
    hooks, told = HookRegistry(), []
    hooks.on(WorkflowStateTransitionedHook, lambda hook: told.append(hook.to_state))
    hooks.on(WorkflowCompletedHook, lambda hook: told.append(hook.succeeded))
    await Trip(World("+s1"), hooks=hooks).execute()
    assert told == ["running", "compensating", "failed", False]


async def test_an_application_gives_what_the_constructor_was_not_given():
    own, other, hooks, told = InMemorySagaStore(), InMemorySagaStore(), HookRegistry(), []
    hooks.on(WorkflowCompletedHook, lambda hook: told.append(hook.workflow_type))
    bare, full = Trip(World()), Trip(World(), own)
    for saga in (bare, full):
        saga.equip(name="trips", store=other, hooks=hooks)
        assert (await saga.execute()).is_ok()
    assert (await other.load("trip"))[0] is (await own.load("trip"))[0] is SagaState.COMPLETED
    assert full.world.log == ["+s0", "+s1", "+s2"]
    assert told == ["saga", "saga"]


async def test_a_saga_that_runs_cannot_be_given_another_store():
    saga = Trip(World(), count=0)

    async def action():
        saga.equip(store=InMemorySagaStore())

    saga.add_step(SagaStep("s", action, max_retries=0))
    error = (await saga.execute()).unwrap_err()
    assert isinstance(error.cause, SagaBusyError)


async def test_events_are_handled_once_each_and_give_commands():
    class Paid(DomainEvent):
        pass

    store = InMemorySagaStore()

    def made():
        saga = Trip(World(), store)

        async def react(event):
            return ["ship"]

        saga.on(Paid, react)
        return saga

    saga, event = made(), Paid()
    assert isinstance(saga, SagaProtocol)
    assert await saga.handle(event) == ["ship"]
    assert await made().handle(event) == []
    assert await made().handle(Paid()) == ["ship"]
    assert await saga.handle(DomainEvent()) == []
    assert (await made().execute()).is_ok()


# --- any crash ---


@given(
    count=st.integers(1, 6),
    failing=st.none() | st.integers(0, 5),
    crashes=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=4),
    idempotent=st.booleans(),
)
async def test_after_any_crashes_all_is_done_or_all_completed_steps_are_undone(
    count, failing, crashes, idempotent
):
    store = InMemorySagaStore()
    bad = () if failing is None or failing >= count else (f"+s{failing}",)
    effects, stored, ended = [], [], None
    for crash_at, crash_after in [*crashes, (None, False)]:
        world = World(*bad, crash_at=crash_at, crash_after=crash_after)
        saga = Trip(world, store, count=0)
        for number in range(count):
            saga.add_step(saga.step(f"s{number}", idempotent=idempotent))
        try:
            known = await store.load("trip") is not None
            ended = await (saga.resume(take_over=True) if known else saga.execute())
        except Crash:
            pass
        # What was stored before this process is not done again by it.
        assert not {f"+{name}" for name in stored} & set(world.log)
        effects += world.log
        stored = (await store.load("trip"))[1].get("done", [])
        if ended is not None:
            break
    steps = [f"s{number}" for number in range(count)]
    if not bad:
        assert ended == Ok(None)
        assert {entry[1:] for entry in effects} == set(steps)
        assert not any(entry.startswith("-") for entry in effects)
        return
    error = ended.unwrap_err()
    completed, undone = steps[:failing], [e[1:] for e in effects if e.startswith("-")]
    left = set(error.compensation_errors)
    assert set(completed) <= set(undone) | left
    assert set(undone) <= set(completed) | {f"s{failing}"}
    if idempotent:
        assert not left
    else:
        assert len(undone) == len(set(undone))  # never twice, whatever happened


@pytest.mark.parametrize("way", ["raise", "return"])
@pytest.mark.parametrize("make", HOPELESS)
async def test_an_error_that_is_not_retryable_fails_a_step_and_a_compensation_at_once(make, way):
    calls = []

    class Bad(AbstractSaga):
        def get_id(self):
            return "bad"

        async def fail(self, what):
            calls.append(what)
            if way == "return":
                return Err(make())
            raise make()

        async def undo(self):
            return await self.fail("undo")

        @saga_step(compensation="undo", max_retries=3, retry_delay=0.0)
        async def first(self):
            calls.append("first")

        @saga_step(max_retries=3, retry_delay=0.0)
        async def second(self):
            return await self.fail("second")

    error = (await Bad().execute()).unwrap_err()
    assert calls == ["first", "second", "undo"]
    assert isinstance(error, SagaError)
    assert list(error.compensation_errors) == ["first"]
