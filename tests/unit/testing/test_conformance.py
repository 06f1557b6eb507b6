"""The frame of conformance suites, and proof that each shipped suite can fail."""

import ast
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

import pytest

import lexigram.testing.conformance as package
from lexigram.cache import MemoryIdempotencyStore, MemoryLocks
from lexigram.contracts.core.hooks import NoOpHookRegistry
from lexigram.contracts.core.result import Err, Ok
from lexigram.contracts.events import NoOpEventBus
from lexigram.events import EventBus
from lexigram.hooks import HookRegistry
from lexigram.testing.conformance import ConformanceSuite, conformance_suite
from lexigram.testing.conformance.cache import CacheCapability, CacheConformance
from lexigram.testing.conformance.events import EventBusCapability, EventBusConformance
from lexigram.testing.conformance.hooks import HookCapability, HookConformance
from lexigram.testing.conformance.idempotency import IdempotencyCapability, IdempotencyConformance
from lexigram.testing.conformance.locks import LockCapability, LockConformance
from lexigram.testing.fakes import FakeCache, FakeEventBus

pytest_plugins = ["pytester"]

FOLDER = Path(package.__file__).parent
SHIPPED = [
    (CacheConformance, CacheCapability),
    (LockConformance, LockCapability),
    (IdempotencyConformance, IdempotencyCapability),
    (EventBusConformance, EventBusCapability),
    (HookConformance, HookCapability),
]


# --- what is shipped ---


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda p: p.stem)
def test_suites_import_contracts_pytest_and_anyio_only(path):
    allowed = {*sys.stdlib_module_names, "pytest", "anyio"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            ours = name.startswith(("lexigram.contracts", "lexigram.testing.conformance"))
            assert ours or name.partition(".")[0] in allowed


def test_importing_the_suites_loads_no_other_part_of_lexigram():
    code = (
        "import sys\n"
        "import lexigram.testing.conformance.cache, lexigram.testing.conformance.events\n"
        "import lexigram.testing.conformance.hooks, lexigram.testing.conformance.locks\n"
        "import lexigram.testing.conformance.idempotency\n"
        "print(*sorted({'.'.join(m.split('.')[:2]) for m in sys.modules if 'lexigram.' in m}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["lexigram.contracts", "lexigram.testing"]


@pytest.mark.parametrize(("suite", "capabilities"), SHIPPED)
def test_every_capability_has_a_spec(suite, capabilities):
    assert suite.known() == set(capabilities)


# --- a wrong implementation fails, and fails the right spec ---


class Forgetful(FakeCache):
    async def set(self, key, value, ttl=None):
        return Ok(None)


class Immortal(FakeCache):
    async def set_many(self, items, ttl=None):
        return await super().set_many(items)


class RegexPatterns(FakeCache):
    async def delete_pattern(self, pattern):
        import re

        wanted = re.compile(pattern.replace("*", ".*").replace("?", "."))
        return await self.delete_many([key for key in self.keys() if wanted.match(key)])


class Raising(FakeCache):
    async def exists(self, key):
        if self._failure is not None:
            raise self._failure
        return await super().exists(key)


class Sharing(FakeCache):
    async def get(self, key):
        entry = self._entries.get(key) if key in self.keys() else None
        return Ok(entry.value if entry else None)


class HidesNone(FakeCache):
    async def get_many(self, keys):
        found = await super().get_many(keys)
        return found.map_sync(lambda d: {k: v for k, v in d.items() if v is not None})


class AlwaysWell(FakeCache):
    async def health_check(self, timeout=5.0):
        with self._ignoring():
            return await super().health_check(timeout)

    def _ignoring(self):
        from contextlib import contextmanager

        @contextmanager
        def healthy():
            before, self._failure = self._failure, None
            yield
            self._failure = before

        return healthy()


class Unwell(FakeCache):
    async def health_check(self, timeout=5.0):
        with self.outage():
            return await super().health_check(timeout)


class Careless(FakeCache):
    async def set_many(self, items, ttl=None):
        lenient = {
            key: value if isinstance(value, int | str) else "?" for key, value in items.items()
        }
        return await super().set_many(lenient, ttl)


class AnyKey(FakeCache):
    async def exists(self, key):
        return Ok(key in self._entries)


class Herd(FakeCache):
    """Every caller that finds nothing loads."""

    async def get_or_set(self, key, loader, ttl=None, *, cache_none=True):
        found = (await self.get_many([key])).unwrap()
        if key not in found:
            found[key] = await loader()
            await self.set(key, found[key], ttl)
        return Ok(found[key])


class Generous(MemoryLocks):
    async def acquire(self, key, owner, ttl=30.0):
        return await super().acquire(key, "everybody", ttl)


class Endless(MemoryLocks):
    async def acquire(self, key, owner, ttl=30.0):
        return await super().acquire(key, owner, ttl * 1000)


class Impatient(MemoryLocks):
    async def acquire_blocking(self, key, owner, ttl=30.0, timeout=None):
        return await self.acquire(key, owner, ttl)


class Unfenced(MemoryLocks):
    async def fence(self, key, owner):
        return 1 if await self.is_held(key, owner) else None


class EveryoneFirst(MemoryIdempotencyStore):
    async def acquire(self, key, ttl=None):
        await super().acquire(key, ttl)
        return Ok(True)


class Amnesic(MemoryIdempotencyStore):
    async def set(self, key, value, ttl=None):
        return Ok(None)


class Eternal(MemoryIdempotencyStore):
    async def acquire(self, key, ttl=None):
        return await super().acquire(key, ttl and ttl * 1000)


class AcceptsAll(MemoryIdempotencyStore):
    async def set(self, key, value, ttl=None):
        return await super().set(key, str(value), ttl)


class StopsAtFailure(EventBus):
    async def publish(self, event):
        for handler in self._handlers_of(type(event)):
            answer = await _call(handler, event)
            if isinstance(answer, Err):
                return answer
        return Ok(None)


class SwallowsCancellation(EventBus):
    async def publish(self, event):
        from lexigram.contracts.events import EventError

        try:
            return await super().publish(event)
        except BaseException as error:
            return Err(EventError("failed", cause=error))


class ExactClassOnly(EventBus):
    def _subscriptions_of(self, event_type):
        return tuple(one for one in self._subscriptions if one.event_type is event_type)


class Live(EventBus):
    """Delivers to whoever is there at the moment, not when publish was called."""

    async def publish(self, event):
        position = 0
        while position < len(self._subscriptions):
            one = self._subscriptions[position]
            if isinstance(event, one.event_type):
                await _call(one.handler, event)
            position += 1
        return Ok(None)


class Swallowing(HookRegistry):
    async def apply_filter(self, hook_name, value, /, **kwargs):
        try:
            return await super().apply_filter(hook_name, value, **kwargs)
        except Exception:
            return value


class Thorough(HookRegistry):
    def unregister_action(self, hook_name, handler):
        found = False
        while super().unregister_action(hook_name, handler):
            found = True
        return found


class Unordered(HookRegistry):
    def register_action(self, hook_name, handler, priority=100, *, once=False):
        super().register_action(hook_name, handler, once=once)


class Loud(HookRegistry):
    async def call_action(self, hook_name, /, **kwargs):
        for handler in self._actions.get(hook_name, ()):
            await _call(lambda _, f=handler.function: f(**kwargs), None)


class OnceTooLate(HookRegistry):
    def register_action(self, hook_name, handler, priority=100, *, once=False):
        if not once:
            super().register_action(hook_name, handler, priority)
            return

        async def once_afterwards(**kwargs):
            try:
                await _call(lambda _: handler(**kwargs), None)
            finally:
                self.unregister_action(hook_name, once_afterwards)

        super().register_action(hook_name, once_afterwards, priority)


async def _call(handler, event):
    import inspect

    answer = getattr(handler, "handle", handler)(event)
    return await answer if inspect.isawaitable(answer) else answer


WRONG = [
    (CacheConformance, Forgetful, {"values", "expiry"}),
    (CacheConformance, Immortal, {"expiry"}),
    (CacheConformance, RegexPatterns, {"patterns"}),
    (CacheConformance, Raising, {"outage"}),
    (CacheConformance, Sharing, {"copies"}),
    (CacheConformance, HidesNone, {"batches"}),
    (CacheConformance, AlwaysWell, {"outage"}),
    (CacheConformance, Unwell, {"health"}),
    (CacheConformance, Careless, {"refusal", "values"}),
    # Each of these caches is its own neighbour, so none of them can share a backend.
    (CacheConformance, FakeCache, {"sharing"}),
    (CacheConformance, AnyKey, {"keys"}),
    # And its own peer: a load is not even shared within it.
    (CacheConformance, Herd, {"loading", "shared_loading"}),
    (LockConformance, Generous, {"exclusion"}),
    (LockConformance, Endless, {"expiry"}),
    (LockConformance, Impatient, {"waiting"}),
    (LockConformance, Unfenced, {"fences"}),
    # Nothing can break what is in memory.
    (LockConformance, MemoryLocks, {"outage"}),
    (IdempotencyConformance, EveryoneFirst, {"claims"}),
    (IdempotencyConformance, Amnesic, {"outcomes"}),
    (IdempotencyConformance, Eternal, {"expiry"}),
    (IdempotencyConformance, AcceptsAll, {"refusal"}),
    (IdempotencyConformance, MemoryIdempotencyStore, {"outage"}),
    (EventBusConformance, FakeEventBus, {"idleness"}),
    (EventBusConformance, NoOpEventBus, {"delivery", "inheritance", "subscriptions", "failures"}),
    (EventBusConformance, StopsAtFailure, {"failures"}),
    (EventBusConformance, SwallowsCancellation, {"cancellation"}),
    (EventBusConformance, ExactClassOnly, {"inheritance"}),
    (EventBusConformance, Live, {"subscriptions"}),
    (HookConformance, NoOpHookRegistry, {"actions", "filters", "order", "once", "removal"}),
    (HookConformance, Swallowing, {"filters"}),
    (HookConformance, Thorough, {"removal"}),
    (HookConformance, Unordered, {"order"}),
    (HookConformance, Loud, {"actions", "once"}),
    (HookConformance, OnceTooLate, {"once"}),
]


@pytest.mark.parametrize(
    ("suite", "wrong", "broken"), WRONG, ids=lambda v: getattr(v, "__name__", "")
)
def test_a_wrong_implementation_fails_the_spec_it_breaks(pytester, suite, wrong, broken):
    assert failed_capabilities(pytester, suite, wrong, broken) == broken


@pytest.mark.parametrize(("suite", "capabilities"), SHIPPED)
def test_there_is_a_wrong_implementation_for_every_capability(suite, capabilities):
    """A spec that nothing can fail is no spec."""
    broken = set().union(*(names for of, _, names in WRONG if of is suite))
    assert broken == {capability.value for capability in capabilities}


def failed_capabilities(pytester, suite, factory, wanted):
    """The capabilities with a failing test among those wanted, when all of them are declared."""
    failed = set()

    def capability_of(name):
        return getattr(getattr(suite, name.partition("[")[0]), "__capability__", None)

    class Watch:
        def pytest_collection_modifyitems(self, items):
            items[:] = [item for item in items if capability_of(item.name) in wanted]

        def pytest_runtest_logreport(self, report):
            if report.failed:
                failed.add(capability_of(report.nodeid.rpartition("::")[2]))

    fixtures = {}
    if suite is CacheConformance:
        fixtures["advance"] = lambda cache: cache.clock.advance
        fixtures["outage"] = lambda cache: cache.outage
        fixtures["neighbour"] = fixtures["peer"] = lambda cache: cache
    sys.modules["under_test"] = module = ModuleType("under_test")
    module.TestIt = conformance_suite(suite, factory, capabilities=suite.known(), **fixtures)
    pytester.makepyfile("from under_test import TestIt")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-q", "--no-header", plugins=[Watch()])
    del sys.modules["under_test"]
    return failed


# --- the frame, on a contract of its own ---


@runtime_checkable
class Counting(Protocol):
    def up(self) -> int: ...


class Ability(StrEnum):
    UP = "up"
    DOWN = "down"


FRAME = """
    from enum import StrEnum
    from typing import Protocol, runtime_checkable

    import pytest
    from lexigram.testing.conformance import ConformanceSuite, conformance_suite

    @runtime_checkable
    class Counting(Protocol):
        def up(self) -> int: ...

    class Ability(StrEnum):
        UP = "up"
        DOWN = "down"

    class CountingSpec(ConformanceSuite):
        contract = Counting
        core = frozenset({Ability.UP})

    class UpSpec(CountingSpec, capability=Ability.UP):
        async def test_up_counts(self, subject):
            assert (subject.up(), subject.up()) == (1, 2)

    class DownSpec(CountingSpec, capability=Ability.DOWN):
        async def test_down_counts(self, subject):
            assert subject.down() == -1

    class CountingConformance(UpSpec, DownSpec): ...

    class Counter:
        n = 0
        closed = False
        def up(self):
            self.n += 1
            return self.n
        def down(self):
            self.n -= 1
            return self.n
"""


@pytest.fixture
def run(pytester):
    def run(text, *args):
        pytester.makepyfile(frame=FRAME, test_it=f"from frame import *\nimport pytest\n{text}")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)

    yield run
    sys.modules.pop("frame", None)


def test_an_undeclared_capability_is_skipped_and_told_in_the_summary(run):
    result = run("TestCounter = conformance_suite(CountingConformance, Counter)", "-rs")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*= conformance =*",
            "test_it.py::TestCounter: Counting, 2 passed, 1 skipped; not declared: down",
            "SKIPPED * TestCounter does not declare 'down'",
        ]
    )


def test_a_declared_capability_is_tested(run):
    result = run(
        "TestCounter = conformance_suite(CountingConformance, Counter, capabilities=Ability)"
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["test_it.py::TestCounter: Counting, 3 passed"])


def test_a_capability_that_is_declared_and_missing_fails(run):
    result = run(
        "class Half(Counter):\n"
        "    down = None\n"
        "TestHalf = conformance_suite(CountingConformance, Half, capabilities=Ability)\n"
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["test_it.py::TestHalf: Counting, 2 passed, 1 failed"])


def test_a_subject_that_lacks_a_member_of_the_contract_fails(run):
    result = run("TestIt = conformance_suite(CountingConformance, object)")
    assert result.parseoutcomes()["failed"] == 2
    # The asserts of a shipped suite explain themselves, as those of a test file do.
    result.stdout.fnmatch_lines(
        ["E*where False = isinstance(<object object at *>, <class 'frame.Counting'>)"]
    )


def test_a_subclass_may_use_fixtures_for_its_subject(run):
    result = run(
        "class TestCounter(CountingConformance):\n"
        "    capabilities = {Ability.UP, Ability.DOWN}\n"
        "    @pytest.fixture\n"
        "    async def subject(self, tmp_path):\n"
        "        yield Counter()\n"
        "    async def test_one_more(self, subject):\n"
        "        assert subject.n == 0\n"
    )
    result.assert_outcomes(passed=4)


@pytest.mark.parametrize(
    "factory",
    [
        "def make(): return Counter()",
        "async def make(): return Counter()",
        "async def make():\n    c = Counter()\n    yield c\n    closed.append(c)",
        (
            "from contextlib import asynccontextmanager\n"
            "@asynccontextmanager\n"
            "async def make():\n    c = Counter()\n    yield c\n    closed.append(c)"
        ),
    ],
    ids=["function", "async function", "async generator", "context manager"],
)
def test_a_factory_takes_any_form_and_is_called_for_each_test(run, factory):
    closes = "yield" in factory
    result = run(
        "closed = []\n"
        f"{factory}\n"
        "TestCounter = conformance_suite(CountingConformance, make, capabilities=Ability)\n"
        f"def test_closed(): assert len(closed) == {3 if closes else 0}\n"
    )
    result.assert_outcomes(passed=4)


def test_a_suite_without_a_subject_says_what_to_do(run):
    result = run("class TestCounter(CountingConformance): ...")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["TestCounter has no subject: define the fixture `subject`*"])


@pytest.mark.parametrize(
    "text",
    [
        "def make(): pytest.skip('no time')\nTestIt = conformance_suite(CountingConformance, make)",
        "@pytest.mark.skip\nclass TestIt(conformance_suite(CountingConformance, Counter)): ...",
        "@pytest.mark.xfail\nclass TestIt(conformance_suite(CountingConformance, object)): ...",
        (
            "class TestIt(conformance_suite(CountingConformance, Counter)):\n"
            "    async def test_more(self): pytest.skip('later')"
        ),
    ],
    ids=["factory", "mark", "xfail", "test"],
)
def test_any_other_skip_fails(run, text):
    result = run(text)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*A conformance test is skipped only for a capability*"])


def test_a_suite_whose_server_is_missing_is_skipped_like_any_test(run, monkeypatch):
    from lexigram.testing.services import Service

    monkeypatch.setattr(Service, "answers", lambda self: False)
    text = (
        "@pytest.mark.service('nats')\n"
        "class TestIt(conformance_suite(CountingConformance, Counter)): ...\n"
    )
    run(text).assert_outcomes(skipped=3)
    monkeypatch.setenv("LEX_REQUIRE_SERVICES", "1")
    run(text).assert_outcomes(errors=3)


def test_a_run_without_suites_prints_no_section(run):
    assert "conformance =" not in run("def test_other(): ...").stdout.str()


def spec():
    class CountingSpec(ConformanceSuite):
        contract = Counting
        core = frozenset({Ability.UP})

    class UpSpec(CountingSpec, capability=Ability.UP):
        async def test_up(self, subject): ...

    return UpSpec


def test_what_the_suite_does_not_know_cannot_be_declared():
    with pytest.raises(TypeError, match="TestIt declares down, which the suite does not know"):
        type("TestIt", (spec(),), {"capabilities": Ability})


def test_the_core_must_be_declared():
    with pytest.raises(TypeError, match="TestIt must declare up: it is part of the core"):
        type("TestIt", (spec(),), {"capabilities": set()})


def test_a_test_of_the_suite_cannot_be_replaced():
    with pytest.raises(TypeError, match="TestIt replaces test_up of UpSpec; a test of a suite"):
        type("TestIt", (spec(),), {"test_up": None})


def test_a_fixture_the_suite_does_not_have_is_refused():
    with pytest.raises(TypeError, match="UpSpec has no fixture 'advance'"):
        conformance_suite(spec(), object, advance=lambda subject: None)
