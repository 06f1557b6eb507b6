"""Turn bindings and handlers into generated functions: the hot path of the container.

A function is made on first use, from the dependency-injector providers and their edges as
they are then; an override makes all of them anew. Inlining is capped: without a cap, 200
layered bindings took 62.8 s to compile, with 8 nodes 30 ms.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import keyword
import linecache
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.di import ServiceScope
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.errors import AsyncDependencyError
from lexigram.di.scope import BUILDING, EXITS, WAITERS, Scope
from lexigram.di.signature import Parameter

if TYPE_CHECKING:
    from lexigram.di.build import Builder
    from lexigram.di.container import Container, Resolver

INLINE_CAP = 8  # nodes of one generated function
ENTRY_CAP = 24  # an entry is compiled once and called for ever: it may be larger
MAX_NESTING = 8  # try blocks in one entry; Python allows 20

_serial = itertools.count(1)


class Compiler:
    """Makes, keeps and forgets generated functions."""

    def __init__(self, container: Container, builder: Builder) -> None:
        self._container = container
        self._builder = builder
        self._functions: dict[tuple[Binding, bool], Callable[..., Any]] = {}
        self._sources: dict[tuple[Binding, bool], str] = {}

    def function(self, binding: Binding, *, is_async: bool) -> Callable[..., Any]:
        """``f(scope)`` that builds or finds ``binding``; its singletons are made already."""
        done = self._functions.get((binding, is_async))
        if done is not None:
            return done
        # Dependencies beyond the cap first, so that generating never nests deeply.
        for step in self._beyond_cap(binding):
            mode = is_async and step.needs_await
            if (step, mode) not in self._functions:
                self._generate(step, mode)
        return self._generate(binding, is_async)

    def source(self, binding: Binding) -> str:
        """The source of what runs for ``binding``, preferring the synchronous form."""
        is_async = binding.needs_await
        self.function(binding, is_async=is_async)
        return self._sources[binding, is_async]

    def forget(self) -> None:
        """Drop every function: the model has changed."""
        self._functions.clear()
        self._sources.clear()

    def entry(
        self, func: Callable[..., Any], resolver: Resolver, handler: Binding, given: Sequence[str]
    ) -> Callable[..., Any]:
        """``func`` with a scope opened, arguments built, and everything torn down after it."""
        is_async = inspect.iscoroutinefunction(func)
        flat = _is_flat(handler)
        if not is_async and handler.needs_await:
            raise AsyncDependencyError(
                f"{handler.name} is a plain function, but what it asks for needs await",
                hint=f"make it `async def {handler.name}`",
            )
        code = _Code(self, f"entry {handler.name}")
        builder = _flat_entry if flat else _scoped_entry
        builder(code, func, resolver, handler, given, is_async)
        return code.compile("entry")

    def _generate(self, binding: Binding, is_async: bool) -> Callable[..., Any]:
        code = _Code(self, binding.name)
        body = _ScopeBody(code, binding)
        code.emit(f"return {body.edge(binding.provider)}")
        prefix = "async def" if is_async else "def"
        head = [f"{prefix} build(scope):"]
        if body.uses_cache:
            head.append("    cache = scope.cache")
        code.lines[:0] = head
        function = code.compile("build")
        self._functions[binding, is_async] = function
        self._sources[binding, is_async] = code.text
        return function

    def _beyond_cap(self, binding: Binding) -> list[Binding]:
        found: list[Binding] = []
        seen = {binding}
        pending = [binding]
        while pending:
            step = pending.pop()
            if step.is_singleton or step.provider.last_overriding is not None:
                continue
            if step is not binding and step.size > INLINE_CAP:
                found.append(step)
            for dependency in eager(step.provider):
                if dependency not in seen:
                    seen.add(dependency)
                    pending.append(dependency)
        return sorted(found, key=lambda step: step.position)


class _Code:
    """Lines of source, and the objects their names stand for."""

    def __init__(self, compiler: Compiler, title: str) -> None:
        self.compiler = compiler
        self.title = title
        self.lines: list[str] = []
        self.depth = 1
        self.text = ""
        self._namespace: dict[str, Any] = {}
        self._constants: dict[int, str] = {}

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, hint: str) -> str:
        """A fresh name that reads like the user's type."""
        base = re.sub(r"\W+", "_", hint).strip("_") or "value"
        name, number = base, itertools.count(2)
        while name in self._namespace or keyword.iskeyword(name) or name in _RESERVED:
            name = f"{base}_{next(number)}"
        self._namespace[name] = None
        return name

    def constant(self, value: Any, hint: str) -> str:
        """The name of an object used in the source."""
        known = self._constants.get(id(value))
        if known is None:
            known = self._constants[id(value)] = self.name(hint)
            self._namespace[known] = value
        return known

    def singleton(self, binding: Binding) -> str:
        value = self.compiler._builder.singleton(binding)
        if value is None or value is True or value is False:
            return repr(value)
        return self.constant(value, f"the_{binding.name}")

    def deferred(self, edge: Any) -> str:
        make = partial(self.compiler._builder.deferred, edge.binding, edge.wish)
        return f"{self.constant(make, f'{edge.wish.name.lower()}_of_{edge.binding.name}')}(scope)"

    def compile(self, function: str) -> Callable[..., Any]:
        self.text = "\n".join(self.lines) + "\n"
        filename = f"<lexigram {next(_serial)}: {self.title}>"
        linecache.cache[filename] = (len(self.text), None, self.text.splitlines(True), filename)
        exec(compile(self.text, filename, "exec"), self._namespace)  # noqa: S102 - our own source
        return self._namespace[function]  # type: ignore[no-any-return]


# Names that generated source uses for itself.
_RESERVED = {"scope", "cache", "build", "entry", "result", "error"}


class _Body:
    """Expressions and statements that produce the value of an edge."""

    def __init__(self, code: _Code) -> None:
        self.code = code
        self.locals: dict[Binding, str] = {}

    def edge(self, edge: Any) -> str:
        """An expression for what stands at the other end of an edge."""
        override = edge.last_overriding
        if override is not None:
            return self._override(edge, override)
        if getattr(edge, "deferred", False):
            return self.code.deferred(edge)
        if hasattr(edge, "members"):
            return f"[{', '.join(self.edge(member) for member in edge.members)}]"
        binding: Binding | None = getattr(edge, "binding", None)
        if binding is None:
            return self._plain(edge)
        if binding.is_singleton:
            return self.code.singleton(binding)
        if binding.lifetime is ServiceScope.SCOPED and binding in self.locals:
            return self.locals[binding]
        return self.build(binding)

    def build(self, binding: Binding) -> str:
        raise AssertionError  # each kind of body knows its own way

    def call(self, binding: Binding) -> str:
        """The call of a target, arguments by position where nothing is left out."""
        args: list[str] = []
        edges = binding.provider.kwargs
        by_position = True
        for parameter in binding.parameters:
            if parameter.name not in edges:
                by_position = False
                continue
            value = self.edge(edges[parameter.name])
            positional = by_position and not parameter.keyword_only
            args.append(value if positional else f"{parameter.name}={value}")
        target = binding.provider.provides
        name = self.code.constant(target, getattr(target, "__name__", binding.name))
        return f"{name}({', '.join(args)})"

    def variable(self, binding: Binding) -> str:
        return self.code.name(_variable(binding))

    def _override(self, edge: Any, override: Any) -> str:
        value = override()
        if type(override).__name__ == "Object":
            return self.code.constant(value, f"override_of_{edge.binding.name}")
        return f"{self.code.constant(override, f'override_of_{edge.binding.name}')}()"

    def _plain(self, edge: Any) -> str:
        if type(edge).__name__ == "CurrentScope":
            return "scope"
        value = edge()
        return "None" if value is None else self.code.constant(value, "value")


class _ScopeBody(_Body):
    """Builds into the cache of a Scope, where other tasks may be building too."""

    def __init__(self, code: _Code, root: Binding) -> None:
        super().__init__(code)
        self.root = root
        self.uses_cache = False

    def build(self, binding: Binding) -> str:
        if binding is not self.root and binding.size > INLINE_CAP:
            return self._nested(binding)
        if binding.lifetime is ServiceScope.SCOPED:
            return self._scoped(binding)
        if binding.kind is Kind.CALL:
            return self.call(binding)
        variable = self.variable(binding)
        self._produce(binding, variable)
        return variable

    def _nested(self, binding: Binding) -> str:
        function = self.code.compiler.function(binding, is_async=binding.needs_await)
        name = self.code.constant(function, f"build_{_variable(binding)}")
        expression = f"{'await ' if binding.needs_await else ''}{name}(scope)"
        if binding.lifetime is not ServiceScope.SCOPED:
            return f"({expression})"
        variable = self.variable(binding)
        self.code.emit(f"{variable} = {expression}")
        self.locals[binding] = variable
        return variable

    def _scoped(self, binding: Binding) -> str:
        code = self.code
        self.uses_cache = True
        key = code.constant(binding, f"{binding.name}_key")
        variable = self.variable(binding)
        code.emit(f"if {key} in cache:")
        code.emit(f"    {variable} = cache[{key}]")
        if binding.needs_await:
            building = code.constant(BUILDING, "BUILDING")
            code.emit(f"    if {variable} is {building}:")
            code.emit(f"        {variable} = await scope.join({key})")
        code.emit("else:")
        code.depth += 1
        outside = dict(self.locals)
        if binding.needs_await:
            self._guarded(binding, key, variable)
        else:
            self._produce(binding, variable)
            code.emit(f"cache[{key}] = {variable}")
        # What was built inside this branch may not exist when the branch is skipped.
        self.locals = outside
        self.locals[binding] = variable
        code.depth -= 1
        return variable

    def _guarded(self, binding: Binding, key: str, variable: str) -> None:
        code = self.code
        code.emit(f"cache[{key}] = {code.constant(BUILDING, 'BUILDING')}")
        code.emit("try:")
        code.depth += 1
        self._produce(binding, variable)
        code.depth -= 1
        code.emit("except BaseException:")
        code.emit(f"    scope.give_up({key})")
        code.emit("    raise")
        code.emit(f"cache[{key}] = {variable}")
        waiters = code.constant(WAITERS, "WAITERS")
        code.emit(f"if {waiters} in cache: scope.settle({key})")

    def _produce(self, binding: Binding, variable: str) -> None:
        code = self.code
        call = self.call(binding)
        if binding.kind is Kind.CALL:
            code.emit(f"{variable} = {call}")
        elif binding.kind is Kind.COROUTINE:
            code.emit(f"{variable} = await {call}")
        elif binding.kind is Kind.GENERATOR:
            code.emit(f"{variable} = scope.keep({call})")
        else:
            self._async_generator(binding, variable, call)

    def _async_generator(self, binding: Binding, variable: str, call: str) -> None:
        code = self.code
        generator = code.name(f"{_variable(binding)}_steps")
        exits = code.constant(EXITS, "EXITS")
        self.uses_cache = True
        code.emit(f"{generator} = {call}")
        code.emit(f"if scope.task is {code.constant(asyncio.current_task, 'current_task')}():")
        code.emit(f"    {variable} = await {generator}.__anext__()")
        code.emit(f"    if {exits} in cache: cache[{exits}].append({generator})")
        code.emit(f"    else: cache[{exits}] = [{generator}]")
        code.emit("else:")
        code.emit(f"    {variable} = await scope.own({binding.name!r}, {generator})")


class _EntryBody(_Body):
    """Builds into local variables: an entry is one task, and nobody else sees its scope."""

    def __init__(self, code: _Code) -> None:
        super().__init__(code)
        self.generators: list[tuple[int, str, Kind]] = []

    def build(self, binding: Binding) -> str:
        code = self.code
        call = self.call(binding)
        if binding.kind is Kind.CALL and binding.lifetime is not ServiceScope.SCOPED:
            return call
        variable = self.variable(binding)
        if binding.kind is Kind.CALL:
            code.emit(f"{variable} = {call}")
        elif binding.kind is Kind.COROUTINE:
            code.emit(f"{variable} = await {call}")
        else:
            self._enter(binding, variable, call)
        if binding.lifetime is ServiceScope.SCOPED:
            self.locals[binding] = variable
        return variable

    def _enter(self, binding: Binding, variable: str, call: str) -> None:
        code = self.code
        generator = code.name(f"{_variable(binding)}_steps")
        code.emit(f"{generator} = {call}")
        step = f"await {generator}.__anext__()"
        if binding.kind is Kind.GENERATOR:
            step = f"next({generator})"
        code.emit(f"{variable} = {step}")
        code.emit("try:")
        self.generators.append((code.depth, generator, binding.kind))
        code.depth += 1

    def leave(self) -> None:
        """Close the try blocks, innermost first; teardown sees the exception."""
        code = self.code
        for depth, generator, kind in reversed(self.generators):
            code.depth = depth
            finish = code.constant(
                _finish_entry if kind is Kind.ASYNC_GENERATOR else _finish_entry_sync,
                "finish" if kind is Kind.ASYNC_GENERATOR else "finish_sync",
            )
            wait = "await " if kind is Kind.ASYNC_GENERATOR else ""
            stop = "StopAsyncIteration" if wait else "StopIteration"
            step = f"await {generator}.__anext__()" if wait else f"next({generator})"
            code.emit("except BaseException as error:")
            code.emit(f"    {wait}{finish}({generator}, error)")
            code.emit("    raise")
            code.emit("else:")
            code.emit(f"    try: {step}")
            code.emit(f"    except {stop}: pass")
            code.emit(f"    else: raise {code.constant(_yielded_twice, 'yielded_twice')}({generator})")


def _flat_entry(
    code: _Code,
    func: Callable[..., Any],
    resolver: Resolver,
    handler: Binding,
    given: Sequence[str],
    is_async: bool,
) -> None:
    body = _EntryBody(code)
    _entry_head(code, resolver, handler, given, is_async)
    arguments = _arguments(body, handler, given)
    wait = "await " if is_async else ""
    code.emit(f"result = {wait}{code.constant(func, handler.name)}({arguments})")
    body.leave()
    code.depth = 1
    code.emit("return result")


def _scoped_entry(
    code: _Code,
    func: Callable[..., Any],
    resolver: Resolver,
    handler: Binding,
    given: Sequence[str],
    is_async: bool,
) -> None:
    """A large graph, or one that asks for its scope, is built into a real Scope."""
    body = _ScopeBody(code, handler)
    body.uses_cache = True
    _entry_head(code, resolver, handler, given, is_async)
    wait = "await " if is_async else ""
    scope = code.constant(Scope, "Scope")
    code.emit(f"scope = {scope}({code.constant(resolver, 'resolver')})")
    if is_async:
        code.emit(f"scope.task = {code.constant(asyncio.current_task, 'current_task')}()")
    code.emit("cache = scope.cache")
    code.emit("try:")
    code.depth += 1
    arguments = _arguments(body, handler, given)
    code.emit(f"result = {wait}{code.constant(func, handler.name)}({arguments})")
    code.depth -= 1
    code.emit("except BaseException as error:")
    code.emit(f"    {'await scope.close(error)' if is_async else 'scope.__exit__(None, error, None)'}")
    code.emit("    raise")
    code.emit("await scope.close()" if is_async else "scope.__exit__(None, None, None)")
    code.emit("return result")


def _entry_head(
    code: _Code, resolver: Resolver, handler: Binding, given: Sequence[str], is_async: bool
) -> None:
    """The signature, and the one comparison that notices an override."""
    container = resolver.container
    for name in given:
        code._namespace[name] = None
    names = ", ".join(given)
    prefix = "async def" if is_async else "def"
    code.lines.append(f"{prefix} entry({names}):")
    epoch = code.constant(container.epoch, "epoch")
    renew = code.constant(partial(container.renew_entry, resolver, handler, tuple(given)), "renew")
    wait = "await " if is_async else ""
    code.emit(f"if {epoch}[0] != {container.epoch[0]}: return {wait}{renew}()({names})")


def _arguments(body: _Body, handler: Binding, given: Sequence[str]) -> str:
    parts: list[str] = []
    edges = handler.provider.kwargs
    for parameter in handler.parameters:
        if parameter.name in given:
            parts.append(_pass(parameter, parameter.name, parts))
        elif parameter.name in edges:
            parts.append(_pass(parameter, body.edge(edges[parameter.name]), parts))
    return ", ".join(parts)


def _pass(parameter: Parameter, value: str, before: list[str]) -> str:
    positional = not parameter.keyword_only and not any("=" in part for part in before)
    return value if positional and value == parameter.name else f"{parameter.name}={value}"


def _is_flat(handler: Binding) -> bool:
    """True when everything fits in local variables of one function."""
    nodes = generators = 0
    seen = {handler}
    pending = [handler]
    while pending:
        step = pending.pop()
        nodes += 1
        generators += step.is_resource
        for edge in step.provider.kwargs.values():
            if getattr(edge, "deferred", False) or type(edge).__name__ == "CurrentScope":
                return False
        for dependency in eager(step.provider):
            if not dependency.is_singleton and dependency not in seen:
                seen.add(dependency)
                pending.append(dependency)
    return handler.size <= ENTRY_CAP and generators <= MAX_NESTING


async def _finish_entry(generator: Any, error: BaseException) -> None:
    """Throw into a generator; what it raises anew replaces the error, with it as context."""
    try:
        await generator.athrow(error)
    except StopAsyncIteration:
        return
    except BaseException as failure:
        if failure is not error:
            raise
        return
    raise _yielded_twice(generator)


def _finish_entry_sync(generator: Any, error: BaseException) -> None:
    try:
        generator.throw(error)
    except StopIteration:
        return
    except BaseException as failure:
        if failure is not error:
            raise
        return
    raise _yielded_twice(generator)


def _yielded_twice(generator: Any) -> Exception:
    from lexigram.di.errors import ResourceError

    return ResourceError(f"{generator.__qualname__} yielded twice", hint="yield once")


def _variable(binding: Binding) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", binding.name).lower()
    return re.sub(r"\W+", "_", snake).strip("_") or "value"
