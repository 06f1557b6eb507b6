"""The frame of conformance suites: what a contract promises, run on its implementations."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import StrEnum
from typing import Any, ClassVar

import pytest

# Reported to the plugin with every test: its contract, and the capability it was skipped for.
CONTRACT_PROPERTY = "lexigram_contract"
UNDECLARED_PROPERTY = "lexigram_undeclared"

_CAPABILITY = "__capability__"


class ConformanceSuite:
    """Base of the suites: a suite is made of specs, one class per capability.

    ::

        class CacheSpec(ConformanceSuite):  # what the specs of one contract share
            contract = CacheBackendProtocol
            core = frozenset({CacheCapability.VALUES, CacheCapability.EXPIRY})

        class ExpirySpec(CacheSpec, capability=CacheCapability.EXPIRY):
            async def test_a_value_is_gone_after_its_ttl(self, subject): ...

        class CacheConformance(ValuesSpec, ExpirySpec, ...): ...

    An implementation runs all of it: with ``conformance_suite``, or by a subclass that is
    named ``Test…``, sets ``capabilities`` and defines the fixture ``subject``. A test of a
    capability that is not declared is skipped and named in the summary of the run; any other
    skip fails, and a test of the suite cannot be replaced.
    """

    # The protocol the subject must satisfy.
    contract: ClassVar[type[Any]]
    # What no implementation may leave undeclared.
    core: ClassVar[frozenset[StrEnum]] = frozenset()
    # What the implementation under test can do; the core, where it declares nothing.
    capabilities: ClassVar[Collection[StrEnum]]

    pytestmark = pytest.mark.anyio

    def __init_subclass__(cls, *, capability: StrEnum | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, test in vars(cls).items():
            if name.startswith("test_"):
                _refuse_replacing(cls, name)
                if capability is not None:
                    setattr(test, _CAPABILITY, capability)
        if "capabilities" in vars(cls):
            _check_declared(cls)

    @classmethod
    def known(cls) -> frozenset[StrEnum]:
        """Every capability this suite has a test for."""
        found = (getattr(getattr(cls, name), _CAPABILITY, None) for name in dir(cls))
        return frozenset(capability for capability in found if capability is not None)

    @classmethod
    def declared(cls) -> frozenset[StrEnum]:
        """What the implementation under test says it can do."""
        return frozenset(getattr(cls, "capabilities", cls.core))

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The event loop the tests run on."""
        return "asyncio"

    @pytest.fixture
    def subject(self) -> Any:
        """The implementation under test, new for each test; a subclass defines it."""
        pytest.fail(
            f"{type(self).__name__} has no subject: define the fixture `subject`, or make the "
            "class with conformance_suite(...)",
            pytrace=False,
        )

    @pytest.fixture(autouse=True)
    def _declared(self, request: pytest.FixtureRequest) -> None:
        """Skip, in the open, what the implementation does not say it can do."""
        properties = request.node.user_properties
        properties.append((CONTRACT_PROPERTY, self.contract.__name__))
        needed: StrEnum | None = getattr(request.function, _CAPABILITY, None)
        if needed is not None and needed not in self.declared():
            properties.append((UNDECLARED_PROPERTY, needed.value))
            pytest.skip(f"{request.node.parent.name} does not declare {needed.value!r}")

    async def test_the_subject_satisfies_the_contract(self, subject: Any) -> None:
        """Every member of the protocol is there."""
        assert isinstance(subject, self.contract)


def conformance_suite(
    suite: type[ConformanceSuite],
    factory: Callable[[], Any],
    *,
    capabilities: Collection[StrEnum] | None = None,
    **fixtures: Callable[[Any], Any],
) -> type[ConformanceSuite]:
    """The suite for one implementation, to be given a name that pytest collects.

    ::

        TestRedisCache = conformance_suite(CacheConformance, redis_cache, capabilities={...})

    ``factory`` is called for each test and gives a new, empty subject: a class, a function, an
    async function, or, to clean up afterwards, an async generator or context manager.
    ``fixtures`` replace those of the suite by a function of the subject.
    """

    @pytest.fixture
    async def subject(_self: ConformanceSuite) -> AsyncIterator[Any]:
        async with _open(factory) as made:
            yield made

    name = getattr(factory, "__name__", type(factory).__name__)
    body: dict[str, Any] = {"subject": subject}
    for fixture, make in fixtures.items():
        if not hasattr(suite, fixture):
            raise TypeError(f"{suite.__name__} has no fixture {fixture!r}")
        body[fixture] = _fixture(fixture, make)
    if capabilities is not None:
        body["capabilities"] = capabilities
    return type(f"{suite.__name__} of {name}", (suite,), body)


def _fixture(name: str, make: Callable[[Any], Any]) -> Any:
    @pytest.fixture(name=name)
    def fixture(_self: ConformanceSuite, subject: Any) -> Any:
        return make(subject)

    return fixture


@asynccontextmanager
async def _open(factory: Callable[[], Any]) -> AsyncIterator[Any]:
    made = factory()
    if inspect.isasyncgen(made):
        made = _manage(made)
    if isinstance(made, AbstractAsyncContextManager):
        async with made as entered:
            yield entered
    else:
        yield await made if inspect.isawaitable(made) else made


@asynccontextmanager
def _manage(generator: AsyncIterator[Any]) -> AsyncIterator[Any]:
    return generator


def _refuse_replacing(cls: type[ConformanceSuite], name: str) -> None:
    for base in cls.__mro__[1:]:
        if name in vars(base):
            raise TypeError(
                f"{cls.__name__} replaces {name} of {base.__name__}; a test of a suite is part "
                "of the contract: leave its capability undeclared instead"
            )


def _check_declared(cls: type[ConformanceSuite]) -> None:
    unknown = cls.declared() - cls.known()
    if unknown:
        raise TypeError(f"{cls.__name__} declares {_list(unknown)}, which the suite does not know")
    missing = cls.core - cls.declared()
    if missing:
        raise TypeError(f"{cls.__name__} must declare {_list(missing)}: it is part of the core")


def _list(capabilities: Collection[StrEnum]) -> str:
    return ", ".join(sorted(capability.value for capability in capabilities))
