"""How parameters are read and filled: annotations, defaults, markers, and every kind of callable."""

from __future__ import annotations

import sys
import types
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, NamedTuple, Optional, Protocol

import attrs
import pytest

from lexigram.di import (
    Arg,
    AsyncFactory,
    Container,
    Factory,
    Lazy,
    Named,
    injectable,
    scoped,
    singleton,
    transient,
)
from lexigram.di.errors import (
    ContainerValidationError,
    RuntimeArgumentError,
    ScopedResolutionError,
    UnresolvableDependencyError,
)

if TYPE_CHECKING:
    from somewhere import NotAtRunTime


class Greeter(Protocol):
    def greet(self) -> str: ...


class English:
    def greet(self) -> str:
        return "hello"


class French:
    def greet(self) -> str:
        return "salut"


class Clock: ...


class Missing: ...


class Session: ...


def basics(c):
    c.singleton(Greeter, English)
    c.singleton(Greeter, French, name="backup")
    c.singleton(Clock)
    c.scoped(Session)


@pytest.fixture
def build(make):
    """``build(Class)``: an instance of it beside the basics."""

    def run(target, *more):
        def register(c):
            basics(c)
            c.transient(target)
            for item in more:
                item(c)

        return make(register).get(target)

    return run


# Module level, since their annotations are strings that are looked up in this module.


class Optionals:
    def __init__(
        self,
        there: Greeter | None,
        missing: Missing | None,
        old: Optional[Clock],  # noqa: UP045 - both spellings are in use
        named: Annotated[Greeter, Named("backup")] | None,
        inside: Annotated[Greeter | None, Named("backup")],
        unnamed: Annotated[Missing, "some other metadata"] | None,
        no_such_name: Annotated[Greeter, Named("nope")] | None,
    ) -> None:
        self.got = (there, missing, old, named, inside, unnamed, no_such_name)


class Defaults:
    def __init__(
        self, size: int = 3, clock: Clock | None = None, plain=5, missing: Missing = None
    ) -> None:
        self.got = (size, clock, plain, missing)


class KeywordOnly:
    def __init__(self, clock: Clock, *, greeter: Greeter, size: int = 3) -> None:
        self.got = (clock, greeter, size)


class PositionalOnly:
    def __init__(self, clock: Clock, /, greeter: Greeter) -> None:
        self.got = (clock, greeter)


class PositionalDefaults:
    def __init__(self, size: int = 3, clock: Clock | None = None, /) -> None:
        self.got = (size, clock)


class Variadic:
    def __init__(self, clock: Clock, *args: Greeter, **kwargs: Greeter) -> None:
        self.got = (clock, args, kwargs)


class Lists:
    def __init__(
        self,
        greeters: list[Greeter],
        none: list[Missing],
        default: list[Missing] = ("default",),
        named: list[Annotated[Greeter, Named("backup")]] = (),
        data: list[str] = ("data",),
        functions: list[types.FunctionType] = (),
    ) -> None:
        self.got = (greeters, none, default, named, data, functions)


class ByNew:
    def __new__(cls, clock: Clock):
        made = super().__new__(cls)
        made.got = clock
        return made


class Pair(NamedTuple):
    clock: Clock
    greeter: Greeter


@dataclass
class Data:
    clock: Clock
    greeter: Greeter = field(repr=False)
    _: KW_ONLY
    backup: Annotated[Greeter, Named("backup")]
    extra: InitVar[Clock]
    made: list[str] = field(default_factory=list)

    def __post_init__(self, extra: Clock) -> None:
        self.got_extra = extra


@attrs.define
class Attrs:
    clock: Clock
    _private: Greeter
    backup: Annotated[Greeter, Named("backup")] = attrs.field(kw_only=True)
    renamed: Clock = attrs.field(alias="other")
    size: int = 3
    made: list[str] = attrs.field(factory=list, init=False)


class Base:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock


class Implements(Greeter, Base):
    """A protocol before the class with the constructor hides it from inspection."""

    def greet(self) -> str:
        return "implemented"


def wrapping(function):
    @wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Wrapped:
    @wrapping
    def __init__(self, clock: Clock) -> None:
        self.clock = clock


class ForTypeChecking:
    def __init__(self, clock: Clock, other: NotAtRunTime) -> None: ...


class Bare:
    def __init__(self, clock) -> None: ...


def test_an_optional_service_is_none_when_nothing_provides_it(build):
    there, missing, old, named, inside, unnamed, no_such_name = build(Optionals).got
    assert isinstance(there, English)
    assert isinstance(old, Clock)
    assert isinstance(named, French)
    assert inside is named
    assert (missing, unnamed, no_such_name) == (None, None, None)


def test_a_default_stays_when_nothing_provides_the_type(build):
    size, clock, plain, missing = build(Defaults).got
    assert (size, plain, missing) == (3, 5, None)
    assert isinstance(clock, Clock)


def test_keyword_only_parameters_are_filled(build):
    clock, greeter, size = build(KeywordOnly).got
    assert (type(clock), type(greeter), size) == (Clock, English, 3)


def test_positional_only_parameters_are_filled(build):
    clock, greeter = build(PositionalOnly).got
    assert (type(clock), type(greeter)) == (Clock, English)


def test_a_positional_parameter_after_one_left_to_its_default_keeps_its_own(build):
    assert build(PositionalDefaults).got == (3, None)


def test_star_arguments_are_left_alone(build):
    clock, args, kwargs = build(Variadic).got
    assert (type(clock), args, kwargs) == (Clock, (), {})


def test_a_list_holds_everything_bound_and_data_stays_data(build):
    greeters, none, default, named, data, functions = build(Lists).got
    assert [type(item) for item in greeters] == [English, French]
    assert none == []
    assert default == ("default",)
    assert [type(item) for item in named] == [French]
    assert data == ("data",)
    assert functions == ()


def test_a_list_that_is_bound_itself_is_given_as_it_is(build):
    assert build(Lists, lambda c: c.bind(list[Missing], ["mine"])).got[1] == ["mine"]


def test_a_list_leaves_out_the_one_that_asks_for_it(make):
    class All:
        def __init__(self, greeters: list[Greeter]) -> None:
            self.greeters = greeters

        def greet(self) -> str:
            return " ".join(item.greet() for item in self.greeters)

    All.__init__.__annotations__["greeters"] = list[Greeter]

    def register(c):
        c.singleton(Greeter, English, name="one")
        c.singleton(Greeter, French, name="two")
        c.singleton(Greeter, All)

    assert make(register).get(Greeter).greet() == "hello salut"


def test_constructors_of_every_kind_are_read(build):
    assert isinstance(build(ByNew).got, Clock)
    assert [type(item) for item in build(Pair)] == [Clock, English]
    assert isinstance(build(Wrapped).clock, Clock)
    assert isinstance(build(Implements).clock, Clock)


def test_dataclasses_are_filled(build):
    data = build(Data)
    kinds = [type(data.clock), type(data.greeter), type(data.backup), type(data.got_extra)]
    assert kinds == [Clock, English, French, Clock]
    assert data.made == []


def test_attrs_classes_are_filled(build):
    found = build(Attrs)
    kinds = [type(found.clock), type(found._private), type(found.backup), type(found.renamed)]
    assert kinds == [Clock, English, French, Clock]
    assert found.size == 3


def test_inherited_fields_mean_the_types_of_the_module_that_declared_them(make):
    source = """
from __future__ import annotations
import attrs
from dataclasses import dataclass

class Clock: "Another class than the one of this module."

@attrs.define
class AttrsBase:
    clock: Clock

@dataclass
class DataBase:
    clock: Clock
"""
    other = types.ModuleType("a_module_of_bases")
    sys.modules[other.__name__] = other
    try:
        exec(source, vars(other))
        attrs_child = attrs.define(type("AttrsChild", (other.AttrsBase,), {}))
        data_child = dataclass(type("DataChild", (other.DataBase,), {}))

        def register(c):
            c.singleton(Clock)
            c.singleton(other.Clock)
            c.transient(attrs_child)
            c.transient(data_child)

        container = make(register)
        assert isinstance(container.get(attrs_child).clock, other.Clock)
        assert isinstance(container.get(data_child).clock, other.Clock)
    finally:
        del sys.modules[other.__name__]


class Maker:
    def __call__(self, clock: Clock, who: str = "you") -> str:
        return f"{type(clock).__name__} for {who}"

    def method(self, clock: Clock) -> str:
        return f"method with {type(clock).__name__}"

    @staticmethod
    def static(clock: Clock) -> str:
        return f"static with {type(clock).__name__}"


def make_with(who: str, clock: Clock, *, mark: str = "!") -> str:
    return f"{type(clock).__name__} for {who}{mark}"


def make_with_us(clock: Clock) -> str:
    return f"{type(clock).__name__} for us"


@pytest.mark.parametrize(
    ("factory", "made"),
    [
        (Maker(), "Clock for you"),
        (Maker().method, "method with Clock"),
        (Maker.static, "static with Clock"),
        (partial(make_with, "me"), "Clock for me!"),
        (partial(make_with, who="her"), "Clock for her!"),
        (partial(partial(make_with, "him"), mark="?"), "Clock for him?"),
        (partial(Maker(), who="them"), "Clock for them"),
        (wrapping(make_with_us), "Clock for us"),
    ],
)
def test_callables_of_every_kind_are_read(make, factory, made):
    container = make(lambda c: (c.singleton(Clock), c.transient("made", factory=factory)))
    assert container.get("made") == made


def test_builtin_classes_without_parameters_can_be_bound(make):
    container = make(lambda c: (c.transient(dict), c.transient(object)))
    assert container.get(dict) == {}
    assert type(container.get(object)) is object


def test_a_type_alias_means_what_it_stands_for(make):
    from typing_extensions import TypeAliasType

    greeters = TypeAliasType("greeters", list[Greeter])
    backup = TypeAliasType("backup", Annotated[Greeter, Named("backup")])

    class Asks:
        def __init__(self, greeters, backup) -> None:
            self.got = (greeters, backup)

    Asks.__init__.__annotations__ = {"greeters": greeters, "backup": backup}
    found, named = make(lambda c: (basics(c), c.singleton(Asks))).get(Asks).got
    assert [type(item) for item in found] == [English, French]
    assert isinstance(named, French)


# Factory, AsyncFactory, Lazy


class Letter:
    def __init__(self, clock: Clock, to: Arg[str], subject: Arg[str] = "none") -> None:
        self.clock, self.to, self.subject = clock, to, subject


class Writer:
    def __init__(self, letters: Factory[Letter], clocks: Lazy[Clock]) -> None:
        self.letters, self.clocks = letters, clocks


class ScopedLetter:
    def __init__(self, session: Session, to: Arg[str] = "nobody") -> None:
        self.session, self.to = session, to


class ScopedWriter:
    def __init__(
        self, letters: Factory[ScopedLetter], sessions: Lazy[Session], fresh: Factory[Session]
    ) -> None:
        self.letters, self.sessions, self.fresh = letters, sessions, fresh


class AsyncWriter:
    def __init__(self, slow: AsyncFactory[Letter]) -> None:
        self.slow = slow


class Ping:
    def __init__(self, pong: Lazy[Pong]) -> None:
        self.pong = pong


class Pong:
    def __init__(self, ping: Ping) -> None:
        self.ping = ping


def test_a_factory_builds_one_per_call_with_run_time_arguments(make):
    container = make(lambda c: (basics(c), c.transient(Letter), c.singleton(Writer)))
    writer = container.get(Writer)
    one, two = writer.letters(to="you"), writer.letters(to="me", subject="rain")
    assert one is not two
    assert (one.to, one.subject, two.to, two.subject) == ("you", "none", "me", "rain")
    assert one.clock is two.clock is container.get(Clock)
    with pytest.raises(TypeError, match="unexpected keyword argument 'typo'"):
        writer.letters(to="you", typo=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'to'"):
        writer.letters()


def test_lazy_resolves_when_it_is_called(make):
    built = []

    def clock() -> Clock:
        built.append("clock")
        return Clock()

    def register(c):
        c.singleton(Clock, factory=clock)
        c.transient(Letter)
        c.singleton(Writer)

    container = make(register)
    writer = container.get(Writer)
    assert built == []
    assert writer.clocks() is writer.clocks() is container.get(Clock)
    assert built == ["clock"]


def test_lazy_breaks_a_cycle(make):
    container = make(lambda c: (c.singleton(Ping), c.singleton(Pong)))
    ping = container.get(Ping)
    assert ping.pong().ping is ping
    assert ping.pong() is container.get(Pong)


async def test_inside_a_scope_factories_build_in_that_scope(make):
    container = make(lambda c: (basics(c), c.transient(ScopedLetter), c.scoped(ScopedWriter)))
    async with container.scope() as scope:
        writer = await scope.resolve(ScopedWriter)
        session = scope.get(Session)
        assert writer.letters(to="you").session is session
        assert writer.sessions() is session
        assert writer.fresh() is not session


async def test_a_factory_in_a_singleton_builds_each_time_in_a_scope_of_its_own(make):
    class Holder:
        def __init__(self, letters: Factory[ScopedLetter]) -> None:
            self.letters = letters

    Holder.__init__.__annotations__["letters"] = Factory[ScopedLetter]
    container = make(lambda c: (basics(c), c.transient(ScopedLetter), c.singleton(Holder)))
    holder = container.get(Holder)
    assert holder.letters().session is not holder.letters().session


async def test_an_async_factory_awaits_what_building_needs(make):
    async def slow(clock: Clock, to: Arg[str]) -> Letter:
        return Letter(clock, to)

    async def slow_clock() -> Clock:
        return Clock()

    def register(c):
        c.singleton(Clock, factory=slow_clock)
        c.transient(Letter, factory=slow)
        c.transient(AsyncWriter)

    container = make(register)
    writer = container.get(AsyncWriter)
    letter = await writer.slow(to="you")
    assert letter.to == "you"
    assert letter.clock is container.get(Clock)


async def test_a_factory_of_a_resource_is_torn_down_with_the_scope_it_was_used_in(make):
    ended = []

    def session(to: Arg[str]):
        yield to
        ended.append(to)

    async def async_session(to: Arg[str]):
        yield to
        ended.append(to)

    class Works:
        def __init__(self, one: Factory[Session], two: AsyncFactory[Clock]) -> None:
            self.one, self.two = one, two

    Works.__init__.__annotations__.update(one=Factory[Session], two=AsyncFactory[Clock])

    def register(c):
        c.transient(Session, factory=session)
        c.transient(Clock, factory=async_session)
        c.transient(Works)

    container = make(register)
    async with container.scope() as scope:
        works = await scope.resolve(Works)
        assert (works.one(to="a"), await works.two(to="b"), works.one(to="c")) == ("a", "b", "c")
        assert ended == []
    assert ended == ["c", "b", "a"]
    outside = container.get(Works)
    with pytest.raises(ScopedResolutionError, match="Session needs a scope"):
        outside.one(to="d")
    with pytest.raises(ScopedResolutionError, match="Clock needs a scope"):
        await outside.two(to="d")


# Marked classes


@singleton
class MarkedSingleton: ...


@scoped
class MarkedScoped:
    def __init__(self, shared: MarkedSingleton) -> None:
        self.shared = shared


@transient
class MarkedTransient:
    def __init__(self, shared: MarkedSingleton) -> None:
        self.shared = shared


@injectable
class MarkedInjectable: ...


@injectable(lifetime="singleton")
class MarkedByWord: ...


class Unmarked(MarkedSingleton): ...


async def test_a_marked_class_is_injected_without_being_registered(make):
    container = make(lambda c: None)
    assert container.get(MarkedSingleton) is container.get(MarkedSingleton)
    assert container.get(MarkedTransient) is not container.get(MarkedTransient)
    assert container.get(MarkedTransient).shared is container.get(MarkedSingleton)
    assert container.get(MarkedInjectable) is not container.get(MarkedInjectable)
    assert container.get(MarkedByWord) is container.get(MarkedByWord)
    async with container.scope() as scope:
        assert scope.get(MarkedScoped) is await scope.resolve(MarkedScoped)
    with pytest.raises(ScopedResolutionError):
        container.get(MarkedScoped)


def test_a_mark_is_not_inherited(make):
    with pytest.raises(UnresolvableDependencyError):
        make(lambda c: None).get(Unmarked)


def test_a_registration_goes_before_the_mark(make):
    mine = MarkedSingleton()
    assert make(lambda c: c.singleton(MarkedSingleton, mine)).get(MarkedSingleton) is mine


def test_a_marked_class_that_does_not_fit_is_refused_when_it_is_asked_for(make):
    @transient
    class Broken:
        def __init__(self, missing: Missing) -> None: ...

    Broken.__init__.__annotations__["missing"] = Missing
    container = make(lambda c: None)
    for _ in range(2):
        with pytest.raises(ContainerValidationError, match="Broken asks for what it cannot have"):
            container.get(Broken)
    assert container.graph().to_dict()["nodes"] == []


def test_a_marked_class_does_not_show_up_in_lists_because_somebody_asked_for_it(make):
    @singleton
    class MarkedGreeter(English): ...

    container = make(lambda c: c.singleton(English))
    before = container.get(list[English])
    container.get(MarkedGreeter)
    assert container.get(list[English]) == before
    assert container.get(list[MarkedGreeter]) == [container.get(MarkedGreeter)]


def test_a_module_may_list_marked_classes_as_providers(a_module, compose):
    shop = a_module("Shop", marked=[MarkedTransient, MarkedSingleton], exports=[MarkedTransient])
    container = compose(shop)
    assert container.get(MarkedTransient).shared is container.of(shop).get(MarkedSingleton)


# What cannot be read


def test_an_annotation_that_exists_for_type_checkers_only_is_a_problem(make):
    with pytest.raises(ContainerValidationError, match="parameter other of ForTypeChecking"):
        make(lambda c: (basics(c), c.singleton(ForTypeChecking)))


def test_only_the_parameter_with_the_bad_annotation_is_blamed(make):
    with pytest.raises(ContainerValidationError) as caught:
        make(lambda c: (basics(c), c.singleton(ForTypeChecking)))
    assert len(caught.value.problems) == 1


def test_a_parameter_without_annotation_or_default_is_a_problem(make):
    with pytest.raises(ContainerValidationError, match="parameter clock of Bare cannot be filled"):
        make(lambda c: c.singleton(Bare))


def test_a_factory_with_one_unreadable_annotation_is_not_handed_the_container(make):
    def factory(other: NotAtRunTime) -> Clock:
        return Clock()

    with pytest.raises(ContainerValidationError, match="parameter other of Clock cannot be filled"):
        make(lambda c: c.singleton(Clock, factory=factory))


def test_run_time_arguments_are_not_injected(make):
    class Asks:
        def __init__(self, letter: Letter) -> None: ...

    Asks.__init__.__annotations__["letter"] = Letter
    with pytest.raises(ContainerValidationError) as caught:
        make(lambda c: (basics(c), c.transient(Letter), c.transient(Asks)))
    assert caught.value.problems[0].error is RuntimeArgumentError


def test_a_container_is_not_needed_to_mark_or_name():
    assert Named("a") == Named("a") != Named("b")
    assert {Named("a"): 1}[Named("a")] == 1
    assert repr(Named("a")) == "Named('a')"
    assert Container("x").name == "x"
