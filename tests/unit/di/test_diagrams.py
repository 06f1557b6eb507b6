"""Looking at a container: graphs to draw, and the explanation of one service."""

import json
from typing import Annotated

import pytest

from lexigram.di import Factory, Lazy, Named


class Shared: ...


class Session: ...


class Cart:
    def __init__(self, session: Session, shared: Shared) -> None: ...


class Desk:
    def __init__(
        self, carts: Factory[Cart], lazy: Lazy[Shared], all_shared: list[Shared]
    ) -> None: ...


@pytest.fixture
def shop(a_module, compose):
    core = a_module(
        "Core",
        lambda c: (c.singleton(Shared), c.singleton(Shared, name='the "other"')),
        exports=[Shared],
    )
    front = a_module(
        "Front", lambda c: (c.scoped(Session), c.transient(Cart), c.scoped(Desk)), imports=[core]
    )
    return compose(front), front


def test_the_graph_is_drawn_as_mermaid(shop):
    container, _ = shop
    assert container.graph().mermaid() == (
        "flowchart LR\n"
        '    subgraph m0["Core"]\n'
        '        b0(["Shared"])\n'
        '        b1(["Shared #quot;the #quot;other#quot;#quot;"])\n'
        "    end\n"
        '    subgraph m1["Front"]\n'
        '        b2["Session"]\n'
        '        b3>"Cart"]\n'
        '        b4["Desk"]\n'
        "    end\n"
        '    b3 -->|"session"| b2\n'
        '    b3 -->|"shared"| b0\n'
        '    b4 -->|"carts"| b3\n'
        '    b4 -->|"lazy"| b0\n'
        '    b4 -->|"all_shared"| b0\n'
        '    b4 -->|"all_shared"| b1\n'
    )


def test_the_graph_is_drawn_as_dot(shop):
    container, _ = shop
    assert container.graph().dot() == (
        'digraph "shop" {\n'
        "    rankdir=LR;\n"
        '    subgraph cluster_m0 { label="Core";\n'
        '        b0 [label="Shared", shape=oval];\n'
        '        b1 [label="Shared \\"the \\"other\\"\\"", shape=oval];\n'
        "    }\n"
        '    subgraph cluster_m1 { label="Front";\n'
        '        b2 [label="Session", shape=box];\n'
        '        b3 [label="Cart", shape=cds];\n'
        '        b4 [label="Desk", shape=box];\n'
        "    }\n"
        '    b3 -> b2 [label="session"];\n'
        '    b3 -> b0 [label="shared"];\n'
        '    b4 -> b3 [label="carts"];\n'
        '    b4 -> b0 [label="lazy"];\n'
        '    b4 -> b0 [label="all_shared"];\n'
        '    b4 -> b1 [label="all_shared"];\n'
        "}\n"
    )


def test_the_graph_is_told_as_json(shop):
    container, front = shop
    container.of(front).get(Shared)
    told = json.loads(container.graph().json())
    assert told == container.graph().to_dict()
    assert told["name"] == "shop"
    first = told["nodes"][0]
    assert first.pop("site").startswith("tests/unit/di/test_diagrams.py:")
    assert first == {
        "id": 0,
        "service": "Shared",
        "lifetime": "singleton",
        "module": "Core",
        "provider": "core",
        "built": True,
    }
    assert {"from": 3, "to": 0, "parameter": "shared"} in told["edges"]


def test_a_decorated_service_and_its_inner_one_are_two_nodes(make):
    class Loud:
        def __init__(self, inner: Shared) -> None: ...

    container = make(lambda c: (c.singleton(Shared), c.decorate(Shared, Loud)))
    told = container.graph().to_dict()
    assert [node["id"] for node in told["nodes"]] == [0, 1]
    assert told["edges"] == [{"from": 0, "to": 1, "parameter": "inner"}]


def test_modules_with_one_name_are_drawn_apart(a_module, compose):
    one = a_module("Same", lambda c: c.singleton(Shared))
    two = a_module("Same", lambda c: c.singleton(Session))
    assert compose(one, two).graph().mermaid().count("subgraph") == 2


def test_a_service_is_explained_with_its_owner_edges_and_source(shop):
    container, front = shop
    view = container.of(front)
    text = view.explain(Cart)
    lines = text.splitlines()
    assert lines[0].startswith("Cart  bound in Front  tests/unit/di/test_diagrams.py:")
    assert lines[0].endswith("(transient)")
    assert lines[1] == f"  built by call: {Cart!r}"
    assert lines[2].startswith("  session: Session  bound in Front  ")
    assert lines[3].startswith("  shared: Shared  bound in Core  ")
    assert lines[4] == "  source: written once the singletons under it are made"
    view.get(Shared)
    text = view.explain(Cart)
    assert "  source:\n    def build(scope):\n" in text
    assert "return Cart(session, the_Shared)" in text


def test_explaining_a_service_builds_nothing(make):
    built = []

    async def shared() -> Shared:
        built.append("shared")
        return Shared()

    container = make(
        lambda c: (c.singleton(Shared, factory=shared), c.scoped(Session), c.scoped(Cart))
    )
    assert "made: not yet" in container.explain(Shared)
    assert f"built by coroutine: {shared!r}" in container.explain(Shared)
    assert "source: written once" in container.explain(Cart)
    assert built == []


def test_a_singleton_is_explained_with_its_state(make):
    container = make(lambda c: (c.singleton(Shared), c.bind(int, 3, name="size")))
    assert container.explain(Shared).endswith("made: not yet")
    container.get(Shared)
    assert container.explain(Shared).endswith("made: yes")
    assert "built by value: 3" in container.explain(Annotated[int, Named("size")])


def test_the_source_of_an_async_service_shows_how_racing_tasks_are_kept_apart(make):
    async def session() -> Session: ...

    text = make(lambda c: c.scoped(Session, factory=session)).explain(Session)
    assert "    async def build(scope):" in text
    assert "await scope.join(Session_key)" in text
