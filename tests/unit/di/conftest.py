"""Put containers and module graphs together without an application around them."""

import asyncio

import pytest

from lexigram.di import Container, Module, ModuleGraph, Provider, module


@pytest.fixture
def make():
    """``make(register)``: a frozen container of what ``register(container)`` records."""

    def build(register, **overrides):
        container = Container("shop")
        register(container)
        container.freeze(**overrides)
        return container

    return build


@pytest.fixture
def provider():
    """``provider(register, name=...)``: a provider that registers by the function."""

    def build(record, *, name="things"):
        class Things(Provider):
            async def register(self, container):
                record(container)

        return Things(name=name)

    return build


@pytest.fixture
def a_module(provider):
    """``a_module("Name", register, imports=, exports=)``: a declared module."""

    def build(name, record=None, **declared):
        cls = type(name, (Module,), {})
        providers = [provider(record, name=name.lower())] if record else []
        return module(providers=[*providers, *declared.pop("marked", ())], **declared)(cls)

    return build


@pytest.fixture
def compose():
    """``compose(A, B)``: a container in which every provider of the modules has registered."""

    def build(*modules, providers=(), freeze=True):
        graph = ModuleGraph(modules, providers)
        container = Container("shop", graph)
        for node in graph.nodes:
            for item in node.providers:
                drive(item.register(container.registrar(node, item)))
        if freeze:
            container.freeze()
        return container

    return build


def drive(coroutine):
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


@pytest.fixture
async def new_tasks():
    """``new_tasks()``: the tasks that run now and did not before the test."""
    before = asyncio.all_tasks()

    def new():
        now = asyncio.all_tasks() - before - {asyncio.current_task()}
        return {task for task in now if "TestRunner" not in repr(task)}  # of the anyio plugin

    return new
