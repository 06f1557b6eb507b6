"""State machines: order, guards, hooks, versions, and a model they must agree with."""

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.workflow import StateMachineProtocol, StateVersionConflictError
from lexigram.workflow.state import (
    DatabaseStatePersistence,
    InMemoryStatePersistence,
    State,
    StateConcurrencyError,
    StateDefinitionError,
    StateError,
    StateMachine,
    Transition,
)

pytestmark = pytest.mark.anyio


def door(persistence=None, **hooks):
    states = [
        State("shut", {"open": Transition("open", "open", **hooks)}),
        State("open", {"shut": Transition("shut", "shut")}),
    ]
    return StateMachine(states, "shut", persistence, "door" if persistence else None)


async def test_an_event_moves_the_machine():
    machine = door()
    assert isinstance(machine, StateMachineProtocol)
    assert (machine.current_state, machine.version) == ("shut", 0)
    assert machine.can_transition("open")
    assert not machine.can_transition("shut")
    assert machine.events() == ("open",)
    assert await machine.transition("open") == "open"
    assert (machine.current_state, machine.version) == ("open", 1)


async def test_an_event_the_state_does_not_know_is_refused_with_those_it_does():
    machine = door()
    with pytest.raises(StateError) as refused:
        await machine.transition("shut")
    assert (refused.value.event, refused.value.current_state) == ("shut", "shut")
    assert "'open'" in refused.value.hint
    assert machine.version == 0


async def test_guard_persistence_change_exit_enter_transition_is_the_order():
    log = []

    class Told(InMemoryStatePersistence):
        async def append_transition(self, *facts):
            log.append("stored")
            return await super().append_transition(*facts)

    def say(text):
        async def hook(*facts):
            log.append((text, machine.current_state, *facts))
            return True

        return hook

    states = {
        "a": State(
            "a", {"go": Transition("go", "b", say("guard"), say("moved"))}, on_exit=say("exit")
        ),
        "b": State("b", on_enter=say("enter")),
    }
    machine = StateMachine(states, "a", Told(), "m")
    await machine.transition("go")
    assert log == [
        ("guard", "a"),
        "stored",
        ("exit", "b"),
        ("enter", "b"),
        ("moved", "b", "go", "b"),
    ]


@pytest.mark.parametrize("guard", [lambda: False, None])
async def test_a_guard_that_refuses_leaves_everything_as_it_was(guard):
    async def refuses():
        return False

    persistence = InMemoryStatePersistence()
    machine = door(persistence, guard=guard or refuses)
    with pytest.raises(StateError, match="refused"):
        await machine.transition("open")
    assert (machine.current_state, machine.version) == ("shut", 0)
    assert await persistence.get_current_version("door") == 0


async def test_of_two_machines_with_one_id_the_second_gets_a_conflict_and_does_not_move():
    persistence, entered = InMemoryStatePersistence(), []
    first, second = door(persistence), door(persistence)
    second._states["open"] = State("open", on_enter=lambda: entered.append(1))
    await first.transition("open")
    with pytest.raises(StateConcurrencyError) as refused:
        await second.transition("open")
    assert isinstance(refused.value, StateVersionConflictError)
    assert isinstance(refused.value, RuntimeError)
    assert (refused.value.expected_version, refused.value.actual_version) == (0, 1)
    assert (second.current_state, second.version, entered) == ("shut", 0, [])
    assert await second.recover() == "open"
    assert await second.transition("shut") == "shut"


async def test_any_error_of_the_persistence_leaves_the_machine_where_it_was():
    class Broken(InMemoryStatePersistence):
        async def append_transition(self, *facts):
            raise OSError("disk")

    left = []
    machine = StateMachine(
        [State("a", {"go": Transition("go", "b")}, on_exit=lambda: left.append(1)), State("b")],
        "a",
        Broken(),
        "m",
    )
    with pytest.raises(OSError, match="disk"):
        await machine.transition("go")
    assert (machine.current_state, machine.version, left) == ("a", 0, [])


async def test_transitions_of_many_tasks_run_one_after_the_other():
    persistence = InMemoryStatePersistence()
    inside = 0

    async def hook(event, state):
        nonlocal inside
        inside += 1
        assert inside == 1
        await anyio.lowlevel.checkpoint()
        inside -= 1

    states = [State("a", {"tick": Transition("tick", "a", on_transition=hook)})]
    machine = StateMachine(states, "a", persistence, "m")
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(machine.transition, "tick")
    assert machine.version == 20
    assert await persistence.get_current_version("m") == 20


async def test_a_plain_transition_waits_for_one_with_hooks():
    gate = anyio.Event()

    async def waits():
        await gate.wait()
        return True

    states = [
        State("a", {"slow": Transition("slow", "b", waits), "quick": Transition("quick", "c")}),
        State("b", {"quick": Transition("quick", "c")}),
        State("c"),
    ]
    machine = StateMachine(states, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(machine.transition, "slow")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(machine.transition, "quick")
        await anyio.wait_all_tasks_blocked()
        assert machine.current_state == "a"
        gate.set()
    assert (machine.current_state, machine.version) == ("c", 2)


async def test_a_hook_may_send_the_next_event_and_a_guard_may_not():
    async def on():
        if machine.can_transition("shut"):
            await machine.transition("shut")

    machine = StateMachine(
        [
            State("shut", {"open": Transition("open", "open")}),
            State("open", {"shut": Transition("shut", "shut")}, on_enter=on),
        ],
        "shut",
    )
    await machine.transition("open")
    assert (machine.current_state, machine.version) == ("shut", 2)

    async def guard():
        return await guarded.transition("open")

    guarded = door(guard=guard)
    with pytest.raises(StateError, match="sent by a guard"):
        await guarded.transition("open")
    assert guarded.version == 0


async def test_what_a_hook_raises_is_raised_and_the_machine_has_moved():
    async def hook(event, state):
        raise KeyError(event)

    machine = door(on_transition=hook)
    with pytest.raises(KeyError):
        await machine.transition("open")
    assert machine.current_state == "open"
    assert await machine.transition("shut") == "shut"


async def test_recovering_takes_over_the_stored_state():
    persistence = InMemoryStatePersistence()
    first = door(persistence)
    assert await first.recover() == "shut"
    await first.transition("open")
    second = StateMachine(first._states, "shut", persistence, "other")
    assert await second.recover("door") == "open"
    assert (second.version, second.machine_id) == (1, "door")


async def test_a_stored_state_that_is_not_defined_is_refused():
    persistence = InMemoryStatePersistence()
    await persistence.append_transition("door", "shut", "lift", "gone", 0)
    machine = door(persistence)
    with pytest.raises(StateError, match="'gone', which is not defined"):
        await machine.recover()
    assert (machine.current_state, machine.version) == ("shut", 0)


async def test_a_machine_without_persistence_has_nothing_to_recover():
    with pytest.raises(StateDefinitionError, match="without persistence"):
        await door().recover()


async def test_everything_wrong_with_a_definition_is_listed():
    states = [State("a", {"go": Transition("went", "nowhere")}), State("a")]
    with pytest.raises(ValueError) as refused:
        StateMachine(states, "x", InMemoryStatePersistence())
    text = str(refused.value)
    for problem in ("'a' is there twice", "'x' is not among", "'nowhere'", "'went'", "machine_id"):
        assert problem in text


async def test_a_table_name_is_not_a_place_for_statements():
    with pytest.raises(ValueError, match="cannot be the name"):
        DatabaseStatePersistence(object(), "x; DROP TABLE y")


async def test_the_picture_shows_states_events_guards_and_where_it_is():
    machine = door(guard=lambda: True)
    await machine.transition("open")
    assert machine.to_mermaid().splitlines() == [
        "stateDiagram-v2",
        '    state "shut" as s0',
        '    state "open" as s1',
        "    [*] --> s0",
        "    s0 --> s1: open [guarded]",
        "    s1 --> s0: shut",
        "    classDef current stroke-width:3px",
        "    class s1 current",
    ]


@st.composite
def tables(draw):
    names = [f"s{number}" for number in range(draw(st.integers(1, 5)))]
    keys = st.tuples(st.sampled_from(names), st.sampled_from("abc"))
    table = draw(st.dictionaries(keys, st.sampled_from(names)))
    guards = draw(st.dictionaries(st.sampled_from(sorted(table)), st.booleans())) if table else {}
    return names, table, guards


@given(
    tables(),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20),
    st.booleans(),
)
async def test_a_machine_agrees_with_a_table(made_of, events, is_stored):
    names, table, guards = made_of
    persistence = InMemoryStatePersistence() if is_stored else None

    def guard(key):
        return None if key not in guards else lambda: guards[key]

    def made():
        states = [
            State(
                name,
                {
                    event: Transition(event, target, guard((source, event)))
                    for (source, event), target in table.items()
                    if source == name
                },
            )
            for name in names
        ]
        return StateMachine(states, names[0], persistence, "m")

    machine, state, version = made(), names[0], 0
    for event, restart in events:
        if (state, event) in table and guards.get((state, event), True):
            state, version = table[state, event], version + 1
            assert await machine.transition(event) == state
        else:
            with pytest.raises(StateError):
                await machine.transition(event)
        assert (machine.current_state, machine.version) == (state, version)
        if is_stored and restart:
            machine = made()
            await machine.recover()
