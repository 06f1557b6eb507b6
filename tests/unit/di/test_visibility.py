"""Who sees what: a module's own, its imports' exports, and the globals."""

from typing import Annotated, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.di import (
    Container,
    DynamicModule,
    Module,
    ModuleGraph,
    Named,
    Provider,
    global_module,
    module,
    transient,
)
from lexigram.di.errors import (
    AmbiguousDependencyError,
    ContainerValidationError,
    ModuleCycleError,
    ModuleDuplicateError,
    ModuleError,
    ModuleExportError,
    ModuleImportError,
    ModuleVisibilityError,
)


class Greeter(Protocol):
    def greet(self) -> str: ...


class English:
    def greet(self) -> str:
        return "hello"


class French:
    def greet(self) -> str:
        return "salut"


class Desk:
    def __init__(self, greeter: Greeter) -> None:
        self.greeter = greeter


class OtherDesk(Desk): ...


def english(c):
    c.singleton(Greeter, English)


def french(c):
    c.singleton(Greeter, French)


def desk(c):
    c.singleton(Desk)


def errors_of(caught):
    return [problem.error for problem in caught.value.problems]


# Private


def test_what_is_not_exported_is_invisible_to_constructors_of_other_modules(a_module, compose):
    """Defect 2: in the old line private services were injected everywhere."""
    greeting = a_module("Greeting", english)
    front = a_module("Front", desk, imports=[greeting])
    with pytest.raises(ContainerValidationError) as caught:
        compose(front)
    assert errors_of(caught) == [ModuleVisibilityError]


def test_what_is_not_exported_is_invisible_to_get(a_module, compose):
    """Defect 2."""
    greeting = a_module("Greeting", english)
    front = a_module("Front", imports=[greeting])
    container = compose(front)
    for view in (container, container.of(front)):
        with pytest.raises(ModuleVisibilityError, match="Greeting binds it but does not export it"):
            view.get(Greeter)


async def test_what_is_not_exported_is_invisible_in_every_other_way(a_module, compose):
    """Defect 2: nothing was checked after boot."""
    container = compose(a_module("Greeting", english))
    assert await container.resolve_optional(Greeter) is None
    assert await container.resolve_all(Greeter) == []
    assert not container.sees(Greeter)
    async with container.scope() as scope:
        with pytest.raises(ModuleVisibilityError):
            await scope.resolve(Greeter)

    def work(greeter: Greeter) -> None: ...

    with pytest.raises(ContainerValidationError, match="Greeter is not visible to app"):
        await container.call(work)


def test_an_export_is_visible_to_those_who_import_it(a_module, compose):
    """Defect 2: in the old line an exported service was refused."""
    greeting = a_module("Greeting", english, exports=[Greeter])
    front = a_module("Front", desk, imports=[greeting], exports=[Desk])
    assert compose(front).get(Desk).greeter.greet() == "hello"


def test_an_export_is_invisible_to_those_who_do_not_import_it(a_module, compose):
    greeting = a_module("Greeting", english, exports=[Greeter])
    front = a_module("Front", desk)
    with pytest.raises(ContainerValidationError, match="Front does not import Greeting") as caught:
        compose(greeting, front)
    assert errors_of(caught) == [ModuleVisibilityError]


def test_imports_are_not_passed_on(a_module, compose):
    greeting = a_module("Greeting", english, exports=[Greeter])
    middle = a_module("Middle", imports=[greeting])
    front = a_module("Front", desk, imports=[middle])
    with pytest.raises(ContainerValidationError, match="Front does not import Greeting"):
        compose(front)


def test_private_bindings_of_one_type_coexist(a_module, compose):
    """Defect 2: in the old line the last one won, silently."""
    one = a_module("One", lambda c: (english(c), desk(c)), exports=[Desk])
    two = a_module("Two", lambda c: (french(c), c.singleton(OtherDesk)), exports=[OtherDesk])
    container = compose(one, two)
    assert container.get(Desk).greeter.greet() == "hello"
    assert container.get(OtherDesk).greeter.greet() == "salut"
    assert container.of(one).get(Greeter) is container.get(Desk).greeter


def test_a_consumer_that_sees_two_is_refused_naming_both(a_module, compose):
    one = a_module("One", english, exports=[Greeter])
    two = a_module("Two", french, exports=[Greeter])
    front = a_module("Front", desk, imports=[one, two])
    with pytest.raises(ContainerValidationError) as caught:
        compose(front)
    assert errors_of(caught) == [AmbiguousDependencyError]
    text = str(caught.value)
    assert "Front can see 2 bindings of Greeter" in text
    assert "bound in One" in text
    assert "bound in Two" in text


def test_its_own_binding_does_not_hide_an_imported_one(a_module, compose):
    one = a_module("One", english, exports=[Greeter])
    front = a_module("Front", lambda c: (french(c), desk(c)), imports=[one])
    with pytest.raises(ContainerValidationError, match="Front can see 2 bindings of Greeter"):
        compose(front)


def test_two_exports_of_one_type_matter_only_to_those_who_ask(a_module, compose):
    one = a_module("One", lambda c: (english(c), desk(c)), exports=[Greeter, Desk])
    two = a_module("Two", french, exports=[Greeter])
    container = compose(one, two)
    assert container.get(Desk).greeter.greet() == "hello"
    with pytest.raises(AmbiguousDependencyError, match="app can see 2 bindings of Greeter"):
        container.get(Greeter)


# Exports


def test_an_export_nobody_registers_is_refused(a_module, compose):
    """Defect 2."""
    with pytest.raises(ContainerValidationError) as caught:
        compose(a_module("Greeting", desk, exports=[Greeter]), freeze=True)
    assert ModuleExportError in errors_of(caught)
    assert "Greeting exports Greeter, but nobody registers it" in str(caught.value)


def test_an_export_whose_condition_does_not_hold_is_no_problem_until_it_is_needed(
    a_module, compose
):
    greeting = a_module(
        "Greeting", lambda c: c.singleton(Greeter, English, when=False), exports=[Greeter]
    )
    compose(greeting)
    with pytest.raises(ContainerValidationError, match="left out by its when="):
        compose(a_module("Front", desk, imports=[greeting]))


def test_exporting_a_type_exports_its_named_bindings_too(a_module, compose):
    greeting = a_module(
        "Greeting", lambda c: c.singleton(Greeter, French, name="x"), exports=[Greeter]
    )
    assert compose(greeting).get(Annotated[Greeter, Named("x")]).greet() == "salut"


def test_one_name_may_be_exported_alone(a_module, compose):
    def register(c):
        english(c)
        c.singleton(Greeter, French, name="x")

    greeting = a_module("Greeting", register, exports=[Annotated[Greeter, Named("x")]])
    container = compose(greeting)
    assert container.get(Annotated[Greeter, Named("x")]).greet() == "salut"
    with pytest.raises(ModuleVisibilityError):
        container.get(Greeter)


def test_a_token_may_be_exported(a_module, compose):
    assert (
        compose(a_module("Limits", lambda c: c.bind("limit", 3), exports=["limit"])).get("limit")
        == 3
    )


def test_a_marked_class_may_be_exported_without_being_registered(a_module, compose):
    @transient
    class Marked: ...

    assert isinstance(compose(a_module("Shop", exports=[Marked])).get(Marked), Marked)


def test_a_module_passes_on_all_exports_of_another(a_module, compose):
    greeting = a_module("Greeting", lambda c: (english(c), desk(c)), exports=[Greeter, Desk])
    facade = a_module("Facade", imports=[greeting], exports=[greeting])
    front = a_module(
        "Front", lambda c: c.singleton(OtherDesk), imports=[facade], exports=[OtherDesk]
    )
    container = compose(front)
    assert container.get(OtherDesk).greeter is container.get(Desk).greeter


def test_a_module_passes_on_single_types_of_another(a_module, compose):
    greeting = a_module("Greeting", lambda c: (english(c), desk(c)), exports=[Greeter, Desk])
    facade = a_module("Facade", imports=[greeting], exports=[Desk])
    front = a_module("Front", lambda c: c.singleton(OtherDesk), imports=[facade])
    with pytest.raises(ContainerValidationError, match="Front does not import Greeting"):
        compose(front)
    container = compose(a_module("Back", imports=[facade]))
    assert container.of(facade).get(Desk) is container.get(Desk)


def test_the_same_export_by_two_ways_is_one(a_module, compose):
    greeting = a_module("Greeting", english, exports=[Greeter])
    facade = a_module("Facade", imports=[greeting], exports=[greeting])
    front = a_module("Front", desk, imports=[greeting, facade], exports=[Desk])
    assert compose(front).get(Desk).greeter.greet() == "hello"


# Globals and the root


@pytest.mark.parametrize("how", ["argument", "decorator", "dynamic"])
def test_exports_of_a_global_module_are_visible_everywhere(a_module, compose, how, provider):
    greeting = a_module("Greeting", english, exports=[Greeter], is_global=how == "argument")
    if how == "decorator":
        greeting = global_module(greeting)
    if how == "dynamic":
        greeting = DynamicModule(
            module=greeting, providers=[provider(english)], exports=[Greeter], is_global=True
        )
    front = a_module("Front", desk, exports=[Desk])
    assert compose(greeting, front).get(Desk).greeter.greet() == "hello"


def test_private_services_of_a_global_module_stay_private(a_module, compose):
    greeting = a_module("Greeting", english, is_global=True)
    with pytest.raises(ContainerValidationError, match="Greeting binds it but does not export it"):
        compose(greeting, a_module("Front", desk))


def test_what_the_application_registers_itself_is_visible_everywhere(a_module, compose, provider):
    front = a_module("Front", desk, exports=[Desk])
    assert compose(front, providers=[provider(english)]).get(Desk).greeter.greet() == "hello"


def test_the_root_sees_exports_of_modules_it_does_not_import_itself(a_module, compose):
    greeting = a_module("Greeting", english, exports=[Greeter])
    front = a_module("Front", imports=[greeting])
    assert compose(front).get(Greeter).greet() == "hello"


def test_the_container_of_a_module_sees_its_private_services(a_module, compose):
    greeting = a_module("Greeting", english)
    container = compose(greeting)
    assert container.of(greeting).get(Greeter).greet() == "hello"
    assert container.of(greeting) is container.of(greeting)


def test_a_module_that_is_not_there_is_named_with_those_that_are(a_module, compose):
    container = compose(a_module("Greeting"), a_module("Front"))
    with pytest.raises(ModuleError) as caught:
        container.of(a_module("Other"))
    assert str(caught.value) == (
        "[LEX_ERR_MOD_001] module Other is not part of this application\n"
        "→ Fix: add it to modules=[...] (there are: Front, Greeting)"
    )


# Features


class Feature(Module):
    """A module meant for scope()."""


def test_a_feature_sees_what_its_importer_sees(a_module, compose, provider):
    feature = Feature.scope(provider(desk), exports=[Desk])
    front = a_module("Front", english, imports=[feature], exports=[Desk])
    container = compose(front)
    assert container.get(Desk).greeter is container.of(front).get(Greeter)


def test_features_of_one_module_do_not_collide(a_module, compose, provider):
    one = a_module(
        "One", english, imports=[Feature.scope(provider(desk), exports=[Desk])], exports=[Desk]
    )
    two = a_module(
        "Two",
        french,
        imports=[Feature.scope(provider(lambda c: c.singleton(OtherDesk)), exports=[OtherDesk])],
        exports=[OtherDesk],
    )
    container = compose(one, two)
    assert container.get(Desk).greeter.greet() == "hello"
    assert container.get(OtherDesk).greeter.greet() == "salut"


def test_a_feature_with_two_importers_is_refused_naming_both(a_module, compose, provider):
    feature = Feature.scope(provider(desk), exports=[Desk])
    one = a_module("One", english, imports=[feature])
    two = a_module("Two", french, imports=[feature])
    with pytest.raises(ContainerValidationError) as caught:
        compose(one, two)
    assert "FeatureFeature, made by scope(), is imported by One and Two" in str(caught.value)


# The graph of modules


def test_modules_come_after_what_they_import_and_the_root_last(a_module):
    base = a_module("Base")
    left = a_module("Left", imports=[base])
    right = a_module("Right", imports=[base])
    top = a_module("Top", imports=[left, right])
    graph = ModuleGraph([top, base])
    assert [node.name for node in graph.nodes] == ["Base", "Left", "Right", "Top", "app"]
    assert graph.root.name == "app"
    assert graph.node(left).imports == [graph.node(base)]
    assert graph.problems == []


def test_modules_may_be_given_as_any_iterable(a_module):
    graph = ModuleGraph(item for item in [a_module("One"), a_module("Two")])
    assert [node.name for node in graph.nodes] == ["One", "Two", "app"]


def test_an_import_cycle_is_refused(a_module, compose):
    one = a_module("One")
    two = a_module("Two", imports=[one])
    three = a_module("Three", imports=[two])
    module(imports=[three])(one)
    with pytest.raises(ContainerValidationError) as caught:
        compose(three)
    assert errors_of(caught) == [ModuleCycleError]
    assert "modules import each other: One -> Three -> Two -> One" in str(caught.value)


def test_a_module_that_imports_itself_is_refused(a_module, compose):
    one = a_module("One")
    module(imports=[one])(one)
    with pytest.raises(ContainerValidationError, match="modules import each other: One -> One"):
        compose(one)


def test_a_dynamic_module_replaces_what_the_class_declared(a_module, compose, provider):
    greeting = a_module("Greeting", english, exports=[Greeter])
    dynamic = DynamicModule(module=greeting, providers=[provider(french)], exports=[Greeter])
    assert compose(dynamic).get(Greeter).greet() == "salut"


def test_the_bare_class_beside_a_dynamic_module_means_that_one(a_module, compose, provider):
    greeting = a_module("Greeting", english, exports=[Greeter])
    dynamic = DynamicModule(module=greeting, providers=[provider(french)], exports=[Greeter])
    front = a_module("Front", desk, imports=[greeting], exports=[Desk])
    for modules in ([front, dynamic], [dynamic, front]):
        assert compose(*modules).get(Desk).greeter.greet() == "salut"


def test_two_dynamic_modules_of_one_class_are_refused(a_module, compose, provider):
    greeting = a_module("Greeting")
    one = DynamicModule(module=greeting, providers=[provider(english)])
    two = DynamicModule(module=greeting, providers=[provider(french)])
    front = a_module("Front", imports=[two])
    with pytest.raises(ContainerValidationError) as caught:
        compose(one, front)
    assert errors_of(caught) == [ModuleDuplicateError]


def test_one_dynamic_module_may_be_imported_many_times(a_module, compose, provider):
    greeting = a_module("Greeting")
    dynamic = DynamicModule(module=greeting, providers=[provider(english)], exports=[Greeter])
    front = a_module("Front", desk, imports=[dynamic], exports=[Desk])
    assert compose(dynamic, front).get(Desk).greeter.greet() == "hello"


def test_imports_of_a_replaced_declaration_do_not_count(a_module, compose, provider):
    base = a_module("Base")
    greeting = a_module(
        "Greeting", imports=[DynamicModule(module=base, providers=[provider(english)])]
    )
    configured = DynamicModule(
        module=greeting,
        imports=[DynamicModule(module=base, providers=[provider(french)], exports=[Greeter])],
    )
    front = a_module("Front", imports=[greeting])
    assert compose(front, configured).get(Greeter).greet() == "salut"


def test_configure_and_stub_of_a_module_without_settings_repeat_its_declaration(a_module, compose):
    greeting = a_module("Greeting", english, exports=[Greeter])
    assert compose(greeting.configure()).get(Greeter).greet() == "hello"
    assert compose(greeting.stub()).get(Greeter).greet() == "hello"
    with pytest.raises(TypeError, match=r"Greeting.configure\(\) takes no settings"):
        greeting.configure(size=3)


def test_a_bare_decorator_and_a_name_of_its_own_are_fine():
    @module
    class Plain(Module): ...

    @module(name="renamed")
    class Other(Module): ...

    assert [node.name for node in ModuleGraph([Plain, Other]).nodes] == ["Plain", "renamed", "app"]
    assert DynamicModule(module=Plain, name="given").resolved_name == "given"


def test_a_plain_class_may_be_made_a_module_by_the_decorator(a_module):
    @module()
    class Plain: ...

    assert ModuleGraph([Plain]).node(Plain).token is Plain


@pytest.mark.parametrize("wrong", ["a string", 3, English])
def test_what_is_no_module_is_refused_as_an_import(a_module, wrong):
    with pytest.raises(ModuleImportError, match="is not a module"):
        ModuleGraph([a_module("Front", imports=[wrong])])


@pytest.mark.parametrize("wrong", ["a string", 3, English])
def test_what_is_no_provider_is_refused_as_one(wrong):
    front = module(providers=[wrong])(type("Front", (Module,), {}))
    with pytest.raises(ModuleImportError, match="Front lists .* as a provider"):
        ModuleGraph([front])


def test_provider_classes_and_instances_are_both_fine():
    class One(Provider):
        async def register(self, container): ...

    two = One(name="two")
    graph = ModuleGraph([module(providers=[One, two])(type("Front", (Module,), {}))])
    assert [item.name for item in graph.nodes[0].providers] == ["one", "two"]
    assert Container("x", graph).modules is graph


# Any graph of modules


KEYS = "abcd"


@st.composite
def module_graphs(draw):
    """Modules as (registered, imports, exports, re-exported, is_global); imports point back."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        earlier = list(range(number))
        registered = draw(st.lists(st.sampled_from(KEYS), max_size=3))
        imports = draw(st.sets(st.sampled_from(earlier))) if earlier else set()
        passed_on = draw(st.sets(st.sampled_from(sorted(imports)))) if imports else set()
        exports = draw(st.sets(st.sampled_from(registered))) if registered else set()
        found.append((registered, imports, exports, passed_on, draw(st.booleans())))
    return found


def exported(graph, number):
    """Decision D1.2, word by word: what one module shows."""
    registered, _, exports, passed_on, _ = graph[number]
    own = {(number, index) for index, key in enumerate(registered) if key in exports}
    return own.union(*(exported(graph, other) for other in passed_on))


def visible(graph, number):
    """Decision D1.2: all it registers + exports of direct imports + globals."""
    registered, imports, _, _, _ = graph[number]
    shown = imports | {other for other, item in enumerate(graph) if item[4]}
    own = {(number, index) for index, _ in enumerate(registered)}
    return own.union(*(exported(graph, other) for other in shown))


@given(module_graphs())
def test_a_module_sees_its_own_the_exports_of_its_imports_and_the_globals(graph):
    modules, container = [], None
    for number, (_, imports, exports, passed_on, is_global) in enumerate(graph):
        modules.append(
            module(
                imports=[modules[other] for other in sorted(imports)],
                exports=[*sorted(exports), *(modules[other] for other in sorted(passed_on))],
                is_global=is_global,
            )(type(f"Module{number}", (Module,), {}))
        )
    nodes = ModuleGraph(modules)
    container = Container("any", nodes)
    for number, (registered, *_) in enumerate(graph):
        registrar = container.registrar(nodes.node(modules[number]))
        for index, key in enumerate(registered):
            registrar.bind(key, (number, index))
    container.freeze()
    for number, cls in enumerate(modules):
        view = container.of(cls)
        seen = {
            binding.value
            for key in KEYS
            for binding in container.checked_graph().find(view.node, key)
        }
        assert seen == visible(graph, number)
    everything = set().union(*(exported(graph, number) for number in range(len(graph))))
    root = {
        binding.value
        for key in KEYS
        for binding in container.checked_graph().find(container.node, key)
    }
    assert root == everything
