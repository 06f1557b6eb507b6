"""The report of a graph that cannot work: every problem at once, in these very words."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, Protocol, TypeVar

import pytest

from lexigram.di import Arg, Factory, Lazy, Module, Named, Scope, module
from lexigram.di._problems import Site
from lexigram.di.errors import (
    AmbiguousDependencyError,
    AsyncDependencyError,
    CircularDependencyError,
    ContainerValidationError,
    ModuleCycleError,
    ModuleDuplicateError,
    ModuleExportError,
    ModuleVisibilityError,
    ProtocolValidationError,
    RegistrationError,
    RuntimeArgumentError,
    ScopedResolutionError,
    SignatureError,
    UnresolvableDependencyError,
)
from lexigram.di.module import DynamicModule

if TYPE_CHECKING:
    from somewhere import NotAtRunTime

HERE = Path(__file__)
LINES = HERE.read_text(encoding="utf-8").splitlines()
T = TypeVar("T")


def at(target):
    """File and line: of a constructor, or of the line that ends with ``# <target>``."""
    if isinstance(target, str):
        [number] = [n for n, line in enumerate(LINES, 1) if line.endswith(f"  # {target}")]
    else:
        number = target.__init__.__code__.co_firstlineno
    return str(Site(str(HERE), number))


def reported(register, build):
    """The problems of a graph, as text."""
    with pytest.raises(ContainerValidationError) as caught:
        build(register)
    return [problem.render() for problem in caught.value.problems]


# The graph of the examples. Names are those of a shop.


class Config: ...


class AppConfig: ...


class Pool:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg


class Repo:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool


class Service:
    def __init__(self, repo: Repo) -> None:
        self.repo = repo


class Other:
    def __init__(self, size: int = 3, *, cfg: Config) -> None:
        self.cfg = cfg


class Another:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg


class Mailer(Protocol):
    def send(self) -> None: ...


class Smtp:
    def send(self) -> None: ...


class Post:
    def send(self) -> None: ...


class Orders:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer


def test_a_missing_dependency_is_told_with_the_path_from_the_root_and_near_matches(make):
    def register(c):
        c.singleton(Service)  # bind service
        c.singleton(Repo)  # bind repo
        c.scoped(AppConfig)  # bind app config
        c.singleton(Pool)  # bind pool

    [text] = reported(register, make)
    sites = [at(Service), at(Repo), at(Pool)]
    width = max(len(site) for site in sites)
    one, two, three = (site.ljust(width) for site in sites)
    assert text == (
        "[LEX_ERR_DI_004] nothing provides Config\n"
        f"    Service(repo)         {one}  bound in app  {at('bind service')}  (singleton)\n"
        f"    └─ repo: Repo         {two}  bound in app  {at('bind repo')}  (singleton)\n"
        f"       └─ pool: Pool      {three}  bound in app  {at('bind pool')}  (singleton)\n"
        "          └─ cfg: Config  ✗ not bound\n"
        "    fix: bind it:  container.singleton(Config, ...)  in app\n"
        "    near: AppConfig (bound in app)"
    )


def test_one_missing_key_is_told_once_with_all_who_need_it(make):
    def register(c):
        c.singleton(Pool)  # bind one
        c.singleton(Other)
        c.singleton(Another)

    [text] = reported(register, make)
    assert text == (
        "[LEX_ERR_DI_004] nothing provides Config\n"
        f"    Pool(cfg)       {at(Pool)}  bound in app  {at('bind one')}  (singleton)\n"
        "    └─ cfg: Config  ✗ not bound\n"
        "    also needed by Other, Another\n"
        "    fix: bind it:  container.singleton(Config, ...)  in app"
    )


def test_a_missing_name_is_told_with_the_unnamed_as_near_match(make):
    class Asks:
        def __init__(self, mailer: Annotated[Mailer, Named("backup")]) -> None: ...

    def register(c):
        c.singleton(Mailer, Smtp)
        c.singleton(Asks)  # bind asks

    [text] = reported(register, make)
    assert text == (
        '[LEX_ERR_DI_004] nothing provides Mailer "backup"\n'
        f"    Asks(mailer)                {at(Asks)}  bound in app  {at('bind asks')}  (singleton)\n"
        '    └─ mailer: Mailer "backup"  ✗ not bound\n'
        '    fix: bind it:  container.singleton(Mailer, ..., name="backup")  in app\n'
        "    near: Mailer (bound in app)"
    )


def test_near_matches_say_why_they_do_not_serve(a_module, compose):
    class Configs: ...

    class MyConfig: ...

    def hidden(c):
        c.singleton(AppConfig)
        c.singleton(Configs)
        c.singleton(Config, when=False)

    core = a_module("Core", hidden, exports=[Configs])
    data = a_module("Data", lambda c: (c.singleton(MyConfig), c.singleton(Pool)))
    with pytest.raises(ContainerValidationError) as caught:
        compose(core, data)
    [problem] = caught.value.problems
    assert problem.near == (
        "Config (bound in Core, left out by its when=)",
        "Configs (bound in Core, not imported)",
        "MyConfig (bound in Data)",
    )


def test_two_visible_bindings_are_both_named(make):
    def register(c):
        c.singleton(Mailer, Smtp)  # bind smtp
        c.scoped(Mailer, Post)  # bind post
        c.scoped(Orders)  # bind orders

    [text] = reported(register, make)
    assert text == (
        "[LEX_ERR_DI_101] app can see 2 bindings of Mailer\n"
        f"    Orders(mailer)     {at(Orders)}  bound in app  {at('bind orders')}  (scoped)\n"
        "    └─ mailer: Mailer  ✗ 2 bindings are visible\n"
        f"    - Mailer  bound in app  {at('bind smtp')}  (singleton)\n"
        f"    - Mailer  bound in app  {at('bind post')}  (scoped)\n"
        "    fix: stop exporting one, give one a name= and ask for Annotated[Mailer, Named(...)], "
        "or take list[Mailer]"
    )


def test_a_private_service_of_another_module_is_told_with_the_export_to_add(a_module, compose):
    def bind_mailer(c):
        c.singleton(Mailer, Smtp)  # bind private

    def bind_orders(c):
        c.singleton(Orders)  # bind asking

    mail = a_module("Mail", bind_mailer)
    front = a_module("Front", bind_orders)
    [text] = reported(None, lambda _: compose(mail, front))
    path = (
        f"    Orders(mailer)     {at(Orders)}  bound in Front  {at('bind asking')}  (singleton)\n"
        "    └─ mailer: Mailer  ✗ not visible to Front\n"
        f"    - Mailer  bound in Mail  {at('bind private')}  (singleton)\n"
    )
    assert text == (
        "[LEX_ERR_MOD_005] Mailer is not visible to Front: Mail binds it but does not export it\n"
        f"{path}"
        "    fix: export it:  exports=[Mailer]  in Mail, and import Mail in Front"
    )
    front = a_module("Front", bind_orders, imports=[mail])
    [text] = reported(None, lambda _: compose(mail, front))
    assert text.endswith("    fix: export it:  exports=[Mailer]  in Mail")
    mail = a_module("Mail", bind_mailer, exports=[Mailer])
    front = a_module("Front", bind_orders)
    [text] = reported(None, lambda _: compose(mail, front))
    assert text == (
        "[LEX_ERR_MOD_005] Mailer is not visible to Front: Mail exports it, but Front does not "
        "import Mail\n"
        f"{path}"
        "    fix: import it:  imports=[Mail]  in Front"
    )


def test_a_decorated_service_is_told_by_the_module_that_owns_it(a_module, compose):
    class Loud:
        def __init__(self, inner: Mailer) -> None: ...

        def send(self) -> None: ...

    mail = a_module("Mail", lambda c: c.singleton(Mailer, Smtp), exports=[Mailer])

    def decorate(c):
        c.decorate(Mailer, Loud)  # decorate mailer

    loud = a_module("LoudMail", decorate, imports=[mail])
    front = a_module("Front", lambda c: c.singleton(Orders))
    [text] = reported(None, lambda _: compose(loud, front))
    assert "Mail exports it, but Front does not import Mail" in text
    assert f"- Mailer  decorated in LoudMail  {at('decorate mailer')}  (singleton)" in text


def test_a_cycle_is_told_hop_by_hop(make):
    [text] = reported(lambda c: (c.singleton(Hen), c.singleton(Egg), c.singleton(Nest)), make)
    assert text == (
        "[LEX_ERR_DI_003] cycle: Hen -> Egg -> Nest -> Hen\n"
        f"    Hen(egg: Egg) {at(Hen)}  ->  Egg(nest: Nest) {at(Egg)}  ->  "
        f"Nest(hen: Hen) {at(Nest)}\n"
        "    fix: break one edge: take `hen: Lazy[Hen]` in Nest and call it when needed"
    )


class Hen:
    def __init__(self, egg: "Egg") -> None: ...


class Egg:
    def __init__(self, nest: "Nest") -> None: ...


class Nest:
    def __init__(self, hen: Hen) -> None: ...


def test_a_class_that_needs_itself_is_a_cycle(make):
    class Selfish:
        def __init__(self, inner: "Selfish") -> None: ...

    Selfish.__init__.__annotations__["inner"] = Selfish
    [text] = reported(lambda c: c.singleton(Selfish), make)
    assert text.startswith("[LEX_ERR_DI_003] cycle: Selfish -> Selfish\n")


def test_a_singleton_that_would_keep_a_scoped_service_is_refused_naming_both(make):
    def register(c):
        c.singleton(Config)
        c.singleton(Repo)  # bind keeper
        c.scoped(Pool)  # bind kept

    [text] = reported(register, make)
    width = max(len(at(Repo)), len(at(Pool)))
    assert text == (
        "[LEX_ERR_DI_009] scope leak: singleton Repo would keep scoped Pool alive\n"
        f"    Repo(pool)     {at(Repo):<{width}}  bound in app  {at('bind keeper')}  (singleton)\n"
        f"    └─ pool: Pool  {at(Pool):<{width}}  bound in app  {at('bind kept')}  (scoped)\n"
        "    fix: make Repo scoped, or take `pool: Factory[Pool]` and call it per unit of work"
    )


def test_a_singleton_that_would_keep_a_scoped_service_through_a_transient_is_refused(make):
    def register(c):
        c.singleton(Config)
        c.singleton(Service)  # bind far keeper
        c.transient(Repo)  # bind between
        c.scoped(Pool)  # bind far kept

    [text] = reported(register, make)
    width = max(len(at(Service)), len(at(Repo)), len(at(Pool)))
    assert text == (
        "[LEX_ERR_DI_009] scope leak: singleton Service would keep scoped Pool alive\n"
        f"    Service(repo)     {at(Service):<{width}}  bound in app  {at('bind far keeper')}  (singleton)\n"
        f"    └─ repo: Repo     {at(Repo):<{width}}  bound in app  {at('bind between')}  (transient)\n"
        f"       └─ pool: Pool  {at(Pool):<{width}}  bound in app  {at('bind far kept')}  (scoped)\n"
        "    fix: make Service scoped, or take `repo: Factory[Repo]` and call it per unit of work"
    )


def test_the_fix_of_a_leak_fits_what_would_be_kept(make):
    async def slow() -> Pool: ...

    def torn_down():
        yield None

    class ByLazy:
        def __init__(self, pool: Lazy[Pool]) -> None: ...

    [text] = reported(lambda c: (c.singleton(Repo), c.scoped(Pool, factory=slow)), make)
    assert "take `pool: AsyncFactory[Pool]` and call it per unit of work" in text
    [text] = reported(lambda c: (c.singleton(Repo), c.transient(Pool, factory=torn_down)), make)
    assert "singleton Repo would keep scope-bound Pool alive" in text
    assert "fix: make Repo scoped, or resolve Pool in a scope of your own where it is used" in text
    [text] = reported(lambda c: (c.singleton(ByLazy), c.scoped(Pool, factory=torn_down)), make)
    assert "scope leak: singleton ByLazy would keep scoped Pool alive" in text


def test_a_singleton_that_asks_for_a_scope_is_refused(make):
    class Keeper:
        def __init__(self, scope: Scope) -> None: ...

    class Between:
        def __init__(self, scope: Scope) -> None: ...

    class FarKeeper:
        def __init__(self, between: Between) -> None: ...

    def register(c):
        c.singleton(Keeper)  # bind scope keeper

    [text] = reported(register, make)
    assert text == (
        "[LEX_ERR_DI_009] singleton Keeper asks for a scope, but is built in none\n"
        f"    Keeper(scope)  {at(Keeper)}  bound in app  {at('bind scope keeper')}  (singleton)\n"
        "    fix: make Keeper scoped, or take the container and open a scope when needed: "
        "`async with container.scope() as scope`"
    )
    [text] = reported(lambda c: (c.singleton(FarKeeper), c.transient(Between)), make)
    assert "scope leak: singleton FarKeeper would keep scope-bound Between alive" in text


def test_a_service_with_run_time_arguments_is_told_where_they_are_missing(make):
    class Letter:
        def __init__(self, to: Arg[str], subject: Arg[str], size: Arg[int] = 3) -> None: ...

    class Writer:
        def __init__(self, letter: Letter) -> None: ...

    def register(c):
        c.transient(Letter)  # bind letter
        c.singleton(Writer)  # bind writer

    [text] = reported(register, make)
    width = max(len(at(Letter)), len(at(Writer)))
    assert text == (
        "[LEX_ERR_DI_104] Letter takes to, subject at run time, Writer gives nothing\n"
        f"    Writer(letter)     {at(Writer):<{width}}  bound in app  {at('bind writer')}  (singleton)\n"
        f"    └─ letter: Letter  {at(Letter):<{width}}  bound in app  {at('bind letter')}  (transient)\n"
        "    fix: take `letter: Factory[Letter]` and call it with to=..., subject=..."
    )


def test_a_factory_of_what_needs_await_is_refused(make):
    async def slow() -> Pool: ...

    class ByFactory:
        def __init__(self, pools: Factory[Pool]) -> None: ...

    class ByLazy:
        def __init__(self, pool: Lazy[Pool]) -> None: ...

    def register(c):
        c.transient(Pool, factory=slow)  # bind slow pool
        c.singleton(ByFactory)  # bind by factory

    [text] = reported(register, make)
    slow_site = str(Site(str(HERE), slow.__code__.co_firstlineno))
    width = max(len(at(ByFactory)), len(slow_site))
    assert text == (
        "[LEX_ERR_DI_102] building Pool needs await, but Factory[Pool] is called without it\n"
        f"    ByFactory(pools)  {at(ByFactory):<{width}}  bound in app  {at('bind by factory')}  (singleton)\n"
        f"    └─ pools: Pool    {slow_site:<{width}}  bound in app  {at('bind slow pool')}  (transient)\n"
        "    fix: take `pools: AsyncFactory[Pool]` and await its call"
    )
    [text] = reported(lambda c: (c.transient(Pool, factory=slow), c.transient(ByLazy)), make)
    assert "building Pool needs await, but Lazy[Pool] is called without it" in text


def test_a_factory_of_a_singleton_is_refused(make):
    class Asks:
        def __init__(self, configs: Factory[Config]) -> None: ...

    [text] = reported(lambda c: (c.singleton(Config), c.singleton(Asks)), make)
    lines = text.splitlines()
    assert lines[0] == "[LEX_ERR_DI_005] Asks asks for a factory of Config, which is a singleton"
    assert lines[-1] == "    fix: take `configs: Lazy[Config]`, or bind Config as transient"


def test_a_factory_in_a_singleton_of_what_is_torn_down_is_refused(make):
    def torn_down():
        yield None

    class Asks:
        def __init__(self, pools: Factory[Pool]) -> None: ...

    [text] = reported(lambda c: (c.scoped(Pool, factory=torn_down), c.singleton(Asks)), make)
    lines = text.splitlines()
    assert lines[0] == (
        "[LEX_ERR_DI_009] singleton Asks builds Pool by factory, but nothing would tear it down"
    )
    assert lines[-1] == (
        "    fix: open a scope where it is used: `async with container.scope() as scope: "
        "await scope.resolve(Pool)`"
    )


def test_an_export_nobody_registers_is_told_with_its_module(a_module, compose):
    @module(providers=[], exports=[Config])
    class Core(Module): ...

    core = Core
    other = a_module("Other", lambda c: c.singleton(AppConfig))
    [text] = reported(None, lambda _: compose(core, other))
    line = next(n for n, text in enumerate(LINES, 1) if "providers=[], exports=[Config]" in text)
    assert text == (
        "[LEX_ERR_MOD_003] Core exports Config, but nobody registers it\n"
        f"    Core  {Site(str(HERE), line)}\n"
        "    fix: register it in a provider of Core, or take it out of exports\n"
        "    near: AppConfig (bound in Other, not exported)"
    )


def test_an_import_cycle_is_told_with_the_place_of_each_module(compose):
    class One(Module): ...

    @module(imports=[One])  # declare two
    class Two(Module): ...

    module(imports=[Two])(One)  # declare one
    [text] = reported(None, lambda _: compose(Two))
    assert text == (
        "[LEX_ERR_MOD_004] modules import each other: One -> Two -> One\n"
        f"    One  {at('declare one')}\n"
        f"    Two  {at('declare two')}\n"
        "    fix: move what both need into a third module and import that one"
    )


def test_two_configurations_of_one_module_are_told_with_who_imports_them(a_module, compose):
    core = a_module("Core")
    one, two = DynamicModule(module=core), DynamicModule(module=core)
    left = a_module("Left", imports=[two])
    right = a_module("Right", imports=[two])
    [text] = reported(None, lambda _: compose(one, left, right))
    assert text == (
        "[LEX_ERR_MOD_006] Core is configured in two different ways\n"
        "    imported by app\n"
        "    imported by Left, Right\n"
        "    fix: keep one Core.configure(...) at the root and import the bare class Core elsewhere"
    )


def test_a_feature_with_two_importers_is_told_with_both(a_module, compose):
    feature = a_module("Core").scope()
    left = a_module("Left", imports=[feature])
    right = a_module("Right", imports=[feature])
    [text] = reported(None, lambda _: compose(left, right))
    assert text == (
        "[LEX_ERR_MOD_005] CoreFeature, made by scope(), is imported by Left and Right\n"
        "    fix: call scope(...) once per importing module: it lends its own visibility"
    )


def test_a_parameter_that_cannot_be_filled_is_told_with_the_reason(make):
    class Bare:
        def __init__(self, thing) -> None: ...

    class ForCheckers:
        def __init__(self, thing: "NotAtRunTime") -> None: ...

    def register(c):
        c.singleton(Bare)  # bind bare
        c.singleton(ForCheckers)  # bind for checkers

    bare, for_checkers = reported(register, make)
    assert bare == (
        "[LEX_ERR_DI_103] parameter thing of Bare cannot be filled: it has no annotation\n"
        f"    Bare(thing)  {at(Bare)}  bound in app  {at('bind bare')}  (singleton)\n"
        "    fix: annotate thing with the type it needs, or give it a default"
    )
    assert for_checkers == (
        "[LEX_ERR_DI_103] parameter thing of ForCheckers cannot be filled: its annotation "
        "'NotAtRunTime' cannot be evaluated (name 'NotAtRunTime' is not defined)\n"
        f"    ForCheckers(thing)  {at(ForCheckers)}  bound in app  {at('bind for checkers')}  (singleton)\n"
        "    fix: import the type of thing at run time (not only under TYPE_CHECKING), at the top "
        "of the module"
    )


def test_a_target_without_a_readable_signature_is_told(make):
    def register(c):
        c.singleton(Config, factory=max)  # bind unreadable

    [text] = reported(register, make)
    lines = text.splitlines()
    assert lines[0].startswith(
        "[LEX_ERR_DI_103] the signature of <built-in function max>, bound to Config"
    )
    assert lines[-2] == f"    bound in app  {at('bind unreadable')}  (singleton)"
    assert lines[-1] == ("    fix: bind it with factory= a function that has annotated parameters")


def test_an_abstract_class_or_protocol_cannot_be_built(make):
    class Base(ABC):
        @abstractmethod
        def read(self) -> str: ...

        @abstractmethod
        def write(self) -> None: ...

    def register(c):
        c.singleton(Base)  # bind abstract
        c.transient(Mailer, name="x")  # bind protocol

    abstract, protocol = reported(register, make)
    assert abstract == (
        "[LEX_ERR_DI_005] Base is built from Base, which is abstract: read, write\n"
        f"    bound in app  {at('bind abstract')}  (singleton)\n"
        "    fix: bind a class that implements it:  container.singleton(Base, ...)"
    )
    assert protocol == (
        '[LEX_ERR_DI_005] Mailer "x" is built from Mailer, which is a protocol\n'
        f"    bound in app  {at('bind protocol')}  (transient)\n"
        '    fix: bind a class that implements it:  container.transient(Mailer, ..., name="x")'
    )


class Storage(Protocol):
    name: str

    def read(self) -> str: ...

    def write(self, text: str) -> None: ...

    async def flush(self) -> None: ...

    @property
    def size(self) -> int: ...

    @classmethod
    def make(cls) -> "Storage": ...

    def __len__(self) -> int: ...


def test_a_class_that_lacks_members_of_its_protocol_is_told_which(make):
    class Disk:
        def read(self) -> str: ...

    def register(c):
        c.singleton(Storage, Disk)  # bind disk

    [text] = reported(register, make)
    line = 1 + next(n for n, text in enumerate(LINES) if "class Disk:" in text)
    assert text == (
        "[LEX_ERR_DI_007] Disk is bound to Storage but lacks write, flush, make, __len__\n"
        f"    Storage  {Site(str(HERE), line)}  bound in app  {at('bind disk')}  (singleton)\n"
        "    fix: implement write, flush, make, __len__ in Disk, or bind another class"
    )


def test_members_may_come_from_bases_annotations_or_dynamically(make):
    class Reads:
        def read(self) -> str: ...

    class ByBases(Reads):
        write: object
        flush = make = __len__ = None

    class Dynamic:
        def __getattr__(self, name: str) -> object: ...

    class Explicit(Storage):
        name = size = ""

    class Sub(Storage, Protocol):
        def more(self) -> None: ...

    for cls in (ByBases, Dynamic, Explicit):
        make(lambda c, cls=cls: c.singleton(Storage, cls))
    [text] = reported(lambda c: c.singleton(Sub, ByBases), make)
    assert "ByBases is bound to Sub but lacks more" in text


def test_only_classes_bound_to_protocols_are_checked(make):
    def register(c):
        c.singleton(Storage, factory=lambda: "anything")
        c.singleton(Storage, object(), name="instance")
        c.bind(Storage, 3, name="value")
        c.singleton(Config, Smtp)

    make(register)


def test_a_generic_service_asked_for_without_its_type_is_told(make):
    class Store(Generic[T]):
        def __init__(self, kind: type[T]) -> None: ...

    class Asks:
        def __init__(self, store: Store) -> None: ...

    [text] = reported(lambda c: (c.singleton(Store), c.singleton(Asks)), make)
    lines = text.splitlines()
    assert lines[0] == (
        "[LEX_ERR_DI_004] Asks asks for Store, which is generic, without saying of what"
    )
    assert lines[-1] == "    fix: take `store: Store[...]`"


def test_decorations_that_make_no_sense_are_told(make):
    class NoParameter:
        def send(self) -> None: ...

    def register(c):
        c.decorate(Config, NoParameter)  # decorate nothing
        c.singleton(Mailer, Smtp)
        c.decorate(Mailer, NoParameter)  # decorate without

    nothing, without = reported(register, make)
    assert nothing == (
        "[LEX_ERR_DI_005] app decorates Config, which it cannot see\n"
        f"    decorated in app  {at('decorate nothing')}\n"
        "    fix: bind Config, or import the module that exports it"
    )
    assert without == (
        "[LEX_ERR_DI_005] NoParameter decorates Mailer but takes no parameter for it\n"
        f"    decorated in app  {at('decorate without')}\n"
        "    fix: give it a parameter annotated Mailer"
    )


# All at once


def test_every_problem_of_a_graph_is_in_one_error(a_module, compose):
    class Bare:
        def __init__(self, thing) -> None: ...

    class Disk: ...

    class Letter:
        def __init__(self, to: Arg[str]) -> None: ...

    class Writer:
        def __init__(self, letter: Letter) -> None: ...

    async def slow() -> AppConfig: ...

    class NeedsSlow:
        def __init__(self, slow: Factory[AppConfig]) -> None: ...

    def everything_wrong(c):
        c.singleton(Pool)  # Config is missing
        c.singleton(Hen)
        c.singleton(Egg)
        c.singleton(Nest)  # a cycle
        c.scoped(Smtp)
        c.singleton(Orders, factory=keeps)  # a leak
        c.singleton(Bare)  # no annotation
        c.singleton(Storage, Disk)  # lacks members
        c.transient(Letter)
        c.singleton(Writer)  # run time argument
        c.transient(AppConfig, factory=slow)
        c.singleton(NeedsSlow)  # needs await
        c.decorate(Lazy, slow)  # decorates nothing

    def keeps(smtp: Smtp) -> Orders: ...

    def two_mailers(c):
        c.singleton(Mailer, Smtp)
        c.singleton(Mailer, Post)
        c.singleton(Another)  # Config again, in another module
        c.singleton("asks", factory=asks)

    def asks(mailer: Mailer) -> str: ...  # ambiguous

    def asks_private(mailer: Smtp) -> str: ...

    one = a_module("One", everything_wrong, exports=[Service])  # nobody registers it
    two = a_module("Two", two_mailers, imports=[one])
    three = a_module("Three", lambda c: c.singleton("private", factory=asks_private))
    module(imports=[three])(four := a_module("Four"))
    module(imports=[four])(three)  # an import cycle, and the provider is gone
    five = a_module("Five", lambda c: c.singleton("private", factory=asks_private))
    dynamic = a_module("Dynamic")
    with pytest.raises(ContainerValidationError) as caught:
        compose(two, three, five, DynamicModule(module=dynamic), DynamicModule(module=dynamic))
    error = caught.value
    assert [problem.error for problem in error.problems] == [
        ModuleDuplicateError,
        ModuleCycleError,
        RegistrationError,
        ModuleExportError,
        SignatureError,
        ProtocolValidationError,
        CircularDependencyError,
        ScopedResolutionError,
        RuntimeArgumentError,
        AsyncDependencyError,
        UnresolvableDependencyError,
        UnresolvableDependencyError,
        AmbiguousDependencyError,
        ModuleVisibilityError,
    ]
    text = str(error)
    assert text.startswith(
        '[LEX_ERR_DI_008] 14 problems in the object graph of app "shop" (checked '
    )
    assert all(problem.render() in text for problem in error.problems)
    assert text.count("\n\n") == 14


def test_the_same_facts_are_there_as_json(make):
    with pytest.raises(ContainerValidationError) as caught:
        make(lambda c: (c.singleton(Pool), c.singleton(AppConfig)))
    error = caught.value
    told = json.loads(json.dumps(error.to_dict()))
    assert told["code"] == "LEX_ERR_DI_008"
    assert told["type"] == "ContainerValidationError"
    [problem] = told["details"]["problems"]
    assert problem == {
        "code": "LEX_ERR_DI_004",
        "title": "nothing provides Config",
        "path": list(error.problems[0].lines),
        "fix": "bind it:  container.singleton(Config, ...)  in app",
        "near": ["AppConfig (bound in app)"],
    }


def test_sites_are_relative_to_the_working_directory_where_that_is_shorter(monkeypatch, tmp_path):
    site = Site(str(HERE), 3)
    monkeypatch.chdir(HERE.parent)
    assert str(site) == "test_problems.py:3"
    monkeypatch.chdir(tmp_path)
    assert str(site) == f"{HERE}:3"


def test_a_class_without_a_file_is_told_without_its_place(make):
    ghost = type("Ghost", (), {"__module__": "nowhere"})

    def register(c):
        c.singleton(Mailer, ghost)  # bind ghost

    [text] = reported(register, make)
    assert text.splitlines()[1] == f"    Mailer    bound in app  {at('bind ghost')}  (singleton)"


def test_keys_are_shown_as_people_write_them():
    from lexigram.di.markers import show

    class Store(Generic[T]): ...

    assert show(Config) == "Config"
    assert show(Store[Config]) == "Store[Config]"
    assert show((Store[Config], "x")) == 'Store[Config] "x"'
    assert show("token") == '"token"'
    assert show(Config | None) == "Config | None"
    assert show(Store[Config | None]) == "Store[Config | None]"
    assert show(Annotated[Config, Named("x")]) == "Annotated[Config, ...]"
    assert show(list[str]) == "list[str]"
    assert show(T) == "T"
    assert show(3) == "3"
