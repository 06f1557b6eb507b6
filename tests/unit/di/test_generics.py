"""Open generics: one binding of ``Repo`` builds ``Repo[User]``, ``Repo[Order]`` and so on."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Generic, Protocol, TypeVar

import pytest

from lexigram.di import Named
from lexigram.di.errors import ContainerValidationError, UnresolvableDependencyError

T = TypeVar("T")
K = TypeVar("K")


class User: ...


class Order: ...


class Mapper(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self.kind = kind


class Repo(Generic[T]):
    def __init__(self, kind: type[T], mapper: Mapper[T]) -> None:
        self.kind, self.mapper = kind, mapper


class Store(Protocol[T]):
    def kind(self) -> type[T]: ...


class SqlStore(Generic[K, T]):
    """Its own variables come in another order than those of the protocol."""

    def __init__(self, entity: type[T], mapper: Mapper[T]) -> None:
        self.entity, self.mapper = entity, mapper

    def kind(self) -> type[T]:
        return self.entity


class StringStore(SqlStore[str, T], Store[T]): ...


class Shop:
    def __init__(self, users: Repo[User], orders: Repo[Order], more: Repo[User]) -> None:
        self.users, self.orders, self.more = users, orders, more


def repositories(c):
    c.singleton(Repo)
    c.singleton(Mapper)


def test_each_type_argument_gets_its_own_instance(make):
    container = make(lambda c: (repositories(c), c.singleton(Shop)))
    shop = container.get(Shop)
    assert shop.users.kind is User
    assert shop.orders.kind is Order
    assert shop.users is shop.more is container.get(Repo[User])
    assert shop.users.mapper is container.get(Mapper[User])
    assert shop.orders.mapper.kind is Order


def test_a_generic_service_can_be_asked_for_after_the_freeze(make):
    container = make(repositories)
    assert container.get(Repo[User]).kind is User
    assert container.get(Repo[User]) is container.get(Repo[User])


def test_variables_are_matched_through_base_classes_not_by_position(make):
    container = make(lambda c: (repositories(c), c.singleton(Store, StringStore)))
    store = container.get(Store[User])
    assert isinstance(store, StringStore)
    assert store.kind() is User
    assert store.mapper is container.get(Mapper[User])


async def test_a_factory_is_matched_by_its_return_annotation(make):
    def plain(kind: type[K]) -> Mapper[K]:
        return Mapper(kind)

    def yields(kind: type[K]) -> Iterator[Mapper[K]]:
        yield Mapper(kind)

    async def yields_async(kind: type[K]) -> AsyncIterator[Mapper[K]]:
        yield Mapper(kind)

    async def waits(kind: type[K]) -> Mapper[K]:
        return Mapper(kind)

    for factory in (plain, yields, yields_async, waits):
        async with make(
            lambda c, factory=factory: c.singleton(Mapper, factory=factory)
        ) as container:
            assert (await container.resolve(Mapper[User])).kind is User


def test_an_alias_may_be_registered_with_or_without_what_builds_it(make):
    def register(c):
        c.singleton(Mapper[User])
        c.singleton(Repo[User], Repo)
        c.singleton(Store[User], StringStore[User])

    container = make(register)
    assert container.get(Mapper[User]).kind is User
    assert container.get(Repo[User]).mapper is container.get(Mapper[User])
    assert container.get(Store[User]).kind() is User


def test_an_exact_registration_goes_before_the_open_one(make):
    special = Mapper(str)
    container = make(lambda c: (repositories(c), c.singleton(Mapper[User], special)))
    assert container.get(Repo[User]).mapper is special
    assert container.get(Repo[Order]).mapper is not special


def test_named_open_generics_are_filled_too(make):
    container = make(lambda c: c.singleton(Mapper, name="x"))
    assert container.get(Annotated[Mapper[User], Named("x")]).kind is User
    with pytest.raises(UnresolvableDependencyError):
        container.get(Mapper[User])


async def test_scoped_generics_live_in_their_scope(make):
    container = make(lambda c: (c.scoped(Repo), c.transient(Mapper)))
    async with container.scope() as scope:
        assert scope.get(Repo[User]) is await scope.resolve(Repo[User])
        assert scope.get(Repo[User]) is not scope.get(Repo[Order])


def test_an_open_generic_may_be_decorated(make):
    class Logged(Generic[T]):
        def __init__(self, inner: Mapper[T], kind: type[T]) -> None:
            self.inner, self.kind = inner, kind

    container = make(lambda c: (c.singleton(Mapper), c.decorate(Mapper, Logged)))
    logged = container.get(Mapper[User])
    assert isinstance(logged, Logged)
    assert logged.kind is logged.inner.kind is User


def test_the_open_class_itself_cannot_be_asked_for(make):
    class Asks:
        def __init__(self, mapper: Mapper) -> None: ...

    with pytest.raises(ContainerValidationError, match="Asks asks for Mapper, which is generic"):
        make(lambda c: (repositories(c), c.singleton(Asks)))
    with pytest.raises(
        UnresolvableDependencyError, match=r"Mapper is generic: ask for Mapper\[...\]"
    ):
        make(repositories).get(Mapper)


def test_a_generic_class_without_use_for_its_variable_is_like_any_other(make):
    class Box(Generic[T]): ...

    container = make(lambda c: c.singleton(Box))
    assert isinstance(container.get(Box), Box)
    assert container.get(Box[int]) is not container.get(Box)


def test_private_open_generics_of_two_modules_stay_apart(a_module, compose):
    class Uses:
        def __init__(self, mapper: Mapper[User]) -> None:
            self.mapper = mapper

    class Other(Uses): ...

    one = a_module("One", lambda c: (c.singleton(Mapper), c.singleton(Uses)))
    two = a_module("Two", lambda c: (c.singleton(Mapper), c.singleton(Other)))
    container = compose(one, two)
    assert container.of(one).get(Uses).mapper is container.of(one).get(Mapper[User])
    assert container.of(two).get(Other).mapper is not container.of(one).get(Mapper[User])


def test_two_visible_open_generics_are_ambiguous(make):
    container = make(lambda c: (c.singleton(Mapper), c.singleton(Mapper)))
    with pytest.raises(Exception, match=r"app can see 2 bindings of Mapper\[User\]"):
        container.get(Mapper[User])


def test_exporting_the_open_class_shows_its_forms(a_module, compose):
    data = a_module("Data", repositories, exports=[Repo])
    assert compose(data).get(Repo[User]).mapper.kind is User


def test_one_form_of_an_open_class_may_be_exported_alone(a_module, compose):
    data = a_module("Data", repositories, exports=[Repo[User]])
    container = compose(data)
    assert container.get(Repo[User]).kind is User
    with pytest.raises(Exception, match=r"Repo\[Order\]"):
        container.get(Repo[Order])


def test_lists_of_generic_services_are_filled(make):
    def register(c):
        repositories(c)
        c.singleton(Mapper[User], Mapper(str), name="special")

    container = make(register)
    assert [item.kind for item in container.get(list[Mapper[User]])] == [str]
    assert [item.kind for item in container.get(list[Mapper[Order]])] == [Order]


def test_a_variable_may_stand_for_a_service_beside_plain_ones(make):
    class Clock: ...

    class Holder(Generic[T]):
        def __init__(self, clock: Clock, item: T, items: list[T]) -> None:
            self.clock, self.item, self.items = clock, item, items

    def register(c):
        c.singleton(Holder)
        c.singleton(Clock)
        c.singleton(User)

    container = make(register)
    holder = container.get(Holder[User])
    assert holder.clock is container.get(Clock)
    assert holder.item is container.get(User)
    assert holder.items == [holder.item]
