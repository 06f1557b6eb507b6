"""Turn bindings and handlers into generated functions: the hot path of the container.

A function is made on first use, from the dependency-injector providers and their edges as
they are then; an override makes all of them anew. Inlining is capped: without a cap, 200
layered bindings took 62.8 s to compile, with 8 nodes 30 ms.
"""

from __future__ import annotations

import itertools
import keyword
import linecache
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.di import ServiceScope
from lexigram.di._running import current_task
from lexigram.di.binding import Binding, Kind, eager
from lexigram.di.resources import close, close_sync, never_yielded, raise_all, second_yield_error
from lexigram.di.scope import BUILDING, EXITS, SYNC, WAITERS, not_entered
from lexigram.di.signature import Passing, Wish

if TYPE_CHECKING:
    from lexigram.di._build import Builder
    from lexigram.di._resolver import Resolver
    from lexigram.di.container import Container

ENTRY_CAP = 24  # nodes; an entry is compiled once and called for ever, so it may be large

_NOTHING: Mapping[str, str] = {}
_serial = itertools.count(1)


class Compiler:
    """Makes, keeps and forgets generated functions."""

    def __init__(self, container: Container, builder: Builder) -> None:
        self._container = container
        self.builder = builder
        self._functions: dict[tuple[Binding, bool], Callable[..., Any]] = {}
        self._sources: dict[tuple[Binding, bool], str] = {}

    def function(self, binding: Binding, *, is_async: bool) -> Callable[..., Any]:
        """``f(scope)`` that builds or finds ``binding``; its singletons are made already."""
        done = self._functions.get((binding, is_async))
        if done is not None:
            return done
        # Large dependencies first, so that generating never nests deeply.
        for step in self._large(binding):
            self._generate(step, step.needs_await)
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
        self, resolver: Resolver, handler: Binding, given: Sequence[str]
    ) -> Callable[..., Any]:
        """A handler with a scope opened, arguments built, and everything torn down after it."""
        code = _Code(self, f"entry {handler.name}")
        _Entry(code, self._container, resolver, handler, given).write()
        return code.compile("entry")

    def first_entry(
        self, handler: Binding, given: Sequence[str], become: Callable[[], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """An entry whose first call makes what is not made yet, and then calls ``become()``."""
        code = _Code(self, f"first call of {handler.name}")
        names = ", ".join(code.name(name) for name in given)
        ready = code.constant(self.builder.ready, "ready")
        target = code.constant(handler, "handler")
        become_name = code.constant(become, "become")
        if handler.kind is Kind.COROUTINE:
            code.lines.append(f"async def entry({names}):")
            code.emit(f"await {ready}({target})")
            code.emit(f"return await {become_name}()({names})")
        else:
            code.lines.append(f"def entry({names}):")
            code.emit(f"return {become_name}()({names})")
        return code.compile("entry")

    def _generate(self, binding: Binding, is_async: bool) -> Callable[..., Any]:
        code = _Code(self, binding.name)
        code.lines.append(f"{'async ' if is_async else ''}def build(scope):")
        if binding.needs_scope:
            _open_cache(code)
        code.emit(f"return {_ScopeBody(code, binding).edge(binding.provider)}")
        function = code.compile("build")
        self._functions[binding, is_async] = function
        self._sources[binding, is_async] = code.text
        return function

    def _large(self, binding: Binding) -> list[Binding]:
        """Dependencies that are functions of their own and not yet made, deepest first."""
        found: list[Binding] = []
        seen = {binding}
        pending = [binding]
        while pending:
            step = pending.pop()
            if step.is_singleton or step.provider.last_overriding is not None:
                continue
            if step is not binding and step.is_large:
                if (step, step.needs_await) in self._functions:
                    continue  # and so is all below it
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

    def emit(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def name(self, hint: str) -> str:
        """A fresh name that reads like the user's type."""
        base = re.sub(r"[\W_]+", "_", hint, flags=re.ASCII).strip("_") or "value"
        base = f"_{base}" if base[0].isdigit() else base
        name, number = base, itertools.count(2)
        while name in self._namespace or name in _RESERVED or keyword.iskeyword(name):
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
        value = self.compiler.builder.singleton(binding)
        if value is None or value is True or value is False:
            return repr(value)
        return self.constant(value, f"the_{binding.name}")

    def write_deferred(self, edge: Any) -> str:
        make = partial(self.compiler.builder.defer, edge.binding, edge.wish)
        return f"{self.constant(make, f'{edge.wish.name.lower()}_of_{edge.binding.name}')}(scope)"

    def compile(self, function: str) -> Callable[..., Any]:
        self.text = "\n".join(self.lines) + "\n"
        filename = f"<lexigram {next(_serial)}: {self.title}>"
        exec(compile(self.text, filename, "exec"), self._namespace)  # noqa: S102 - our own source
        # Out of its own globals: without the circle it goes as soon as nobody needs it.
        made: Callable[..., Any] = self._namespace.pop(function)
        linecache.cache[filename] = (len(self.text), None, self.text.splitlines(True), filename)
        weakref.finalize(made.__code__, linecache.cache.pop, filename, None).atexit = False
        return made


# Names that generated source uses for itself.
_RESERVED = {
    *("build", "cache", "entry", "error", "failure", "failures", "next", "opening", "result"),
    *("scope", "AttributeError"),
    *("BaseException", "StopAsyncIteration", "StopIteration"),
}


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
            return self.code.write_deferred(edge)
        if hasattr(edge, "members"):
            return f"[{', '.join([self.edge(member) for member in edge.members])}]"
        binding: Binding | None = getattr(edge, "binding", None)
        if binding is None:
            return self._plain(edge)
        if binding.is_singleton:
            return self.code.singleton(binding)
        if binding.lifetime is ServiceScope.SCOPED and binding in self.locals:
            return self.locals[binding]
        return self.build(binding)

    def build(self, binding: Binding) -> str:
        raise NotImplementedError  # each kind of body knows its own way

    def call(self, binding: Binding, given: Mapping[str, str] = _NOTHING) -> str:
        """The call of a target, arguments by position where nothing is left out."""
        args: list[str] = []
        edges = binding.provider.kwargs
        by_position = True
        for parameter in binding.parameters:
            name = parameter.name
            if name in given:
                value = given[name]
            elif name in edges:
                value = self.edge(edges[name])
            else:
                by_position = False
                continue
            if by_position and parameter.passing is not Passing.KEYWORD:
                args.append(value)
            elif parameter.passing is not Passing.POSITION:
                args.append(f"{name}={value}")
        target = binding.provider.provides
        name = self.code.constant(target, getattr(target, "__name__", binding.name))
        return f"{name}({', '.join(args)})"

    def variable(self, binding: Binding) -> str:
        return self.code.name(_variable(binding))

    def _override(self, edge: Any, override: Any) -> str:
        hint = f"override_of_{edge.binding.name}"
        if type(override).__name__ == "Object":
            return self.code.constant(override(), hint)
        return f"{self.code.constant(override, hint)}()"

    def _plain(self, edge: Any) -> str:
        if hasattr(edge, "is_scope"):
            return "scope"
        value = edge()
        return "None" if value is None else self.code.constant(value, "value")


class _ScopeBody(_Body):
    """Builds into the cache of a Scope, where other tasks may be building too."""

    def __init__(self, code: _Code, root: Binding) -> None:
        super().__init__(code)
        self.root = root

    def build(self, binding: Binding) -> str:
        if binding is not self.root and binding.is_large:
            return self._write_call(binding)
        if binding.lifetime is ServiceScope.SCOPED:
            return self._write_scoped(binding)
        if binding.kind is Kind.CALL:
            return self.call(binding)
        variable = self.variable(binding)
        self._produce(binding, variable)
        return variable

    def _write_call(self, binding: Binding) -> str:
        function = self.code.compiler.function(binding, is_async=binding.needs_await)
        name = self.code.constant(function, f"build_{_variable(binding)}")
        if binding.lifetime is not ServiceScope.SCOPED and not binding.needs_await:
            return f"{name}(scope)"
        variable = self.variable(binding)
        # A statement, never part of a call: `_unguarded` must not be interrupted.
        self.code.emit(f"{variable} = {'await ' if binding.needs_await else ''}{name}(scope)")
        if binding.lifetime is ServiceScope.SCOPED:
            self.locals[binding] = variable
        return variable

    def _write_scoped(self, binding: Binding) -> str:
        code = self.code
        key = code.constant(binding, f"{binding.name}_key")
        variable = self.variable(binding)
        guarded = binding.kind in (Kind.COROUTINE, Kind.ASYNC_GENERATOR)
        code.emit(f"if {key} in cache:", f"    {variable} = cache[{key}]")
        if guarded:
            building = code.constant(BUILDING, "BUILDING")
            code.emit(
                f"    if {variable} is {building}:",
                f"        {variable} = await scope.join({key})",
            )
        code.emit("else:")
        code.depth += 1
        outside = dict(self.locals)
        if guarded:
            self._write_guarded(binding, key, variable)
        else:
            self._write_unguarded(binding, key, variable)
        # What was built inside this branch may not exist when the branch is skipped.
        self.locals = outside
        self.locals[binding] = variable
        code.depth -= 1
        return variable

    def _write_unguarded(self, binding: Binding, key: str, variable: str) -> None:
        """A plain call has no await between the look and the store, so no task can come between."""
        code = self.code
        call = self.call(binding)
        if binding.kind is Kind.GENERATOR:
            call = f"scope.keep({call})"
        if not binding.needs_await:
            code.emit(f"{variable} = cache[{key}] = {call}")
            return
        code.emit(
            f"if {key} in cache: {variable} = cache[{key}]  # another task was faster",
            f"else: {variable} = cache[{key}] = {call}",
        )

    def _write_guarded(self, binding: Binding, key: str, variable: str) -> None:
        code = self.code
        code.emit(f"cache[{key}] = {code.constant(BUILDING, 'BUILDING')}", "try:")
        code.depth += 1
        self._produce(binding, variable)
        code.depth -= 1
        code.emit(
            "except BaseException:",
            f"    scope.give_up({key})",
            "    raise",
            f"cache[{key}] = {variable}",
            f"if {code.constant(WAITERS, 'WAITERS')} in cache: scope.settle({key})",
        )

    def _produce(self, binding: Binding, variable: str) -> None:
        code = self.code
        call = self.call(binding)
        if binding.kind is Kind.COROUTINE:
            code.emit(f"{variable} = await {call}")
        elif binding.kind is Kind.GENERATOR:
            code.emit(f"{variable} = scope.keep({call})")
        else:
            self._async_generator(binding, variable, call)

    def _async_generator(self, binding: Binding, variable: str, call: str) -> None:
        """Inline in the scope's own task; ``scope.enter`` says the same without the speed."""
        code = self.code
        steps = code.name(f"{_variable(binding)}_steps")
        exits = code.constant(EXITS, "EXITS")
        never = code.constant(never_yielded, "never_yielded")
        code.emit(
            f"{steps} = {call}",
            f"if scope.task is {code.constant(current_task, 'current_task')}():",
            f"    try: {variable} = await {steps}.__anext__()",
            f"    except StopAsyncIteration: raise {never}({steps}) from None",
            f"    if {exits} in cache: cache[{exits}].append({steps})",
            f"    else: cache[{exits}] = [{steps}]",
            "else:",
            f"    {variable} = await scope.own({binding.name!r}, {steps})",
        )


class _EntryBody(_Body):
    """Builds into local variables: an entry is one task, and nobody else sees its scope."""

    def __init__(self, code: _Code) -> None:
        super().__init__(code)
        self.generators: list[tuple[str, Kind]] = []

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
        steps = code.name(f"{_variable(binding)}_steps")
        self.generators.append((steps, binding.kind))
        code.emit(
            f"opening = {call}",
            f"try: {variable} = {_step('opening', binding.kind)}",
            f"except {_stop(binding.kind)}: "
            f"raise {code.constant(never_yielded, 'never_yielded')}(opening) from None",
            f"{steps} = opening",  # from here on it must be left
        )


class _Entry:
    """Writes one entry: as local variables where that is possible, else around a Scope."""

    def __init__(
        self,
        code: _Code,
        container: Container,
        resolver: Resolver,
        handler: Binding,
        given: Sequence[str],
    ) -> None:
        self.code = code
        self.container = container
        self.resolver = resolver
        self.handler = handler
        self.given = given
        self.is_async = handler.kind is Kind.COROUTINE
        self.wait = "await " if self.is_async else ""

    def write(self) -> None:
        variables = {name: self.code.name(name) for name in self.given}
        self._head(", ".join(variables.values()))
        if _is_flat(self.handler):
            self._flat(variables)
        else:
            self._write_scoped(variables)
        self.code.emit("return result")

    def _head(self, names: str) -> None:
        """The signature, and the one comparison that notices an override."""
        code, epoch = self.code, self.container.epoch
        renew = partial(self.container.renew_entry, self.resolver, self.handler, tuple(self.given))
        code.lines.append(f"{'async ' if self.is_async else ''}def entry({names}):")
        code.emit(
            f"if {code.constant(epoch, 'epoch')}[0] != {epoch[0]}: "
            f"return {self.wait}{code.constant(renew, 'renew')}()({names})"
        )

    def _flat(self, variables: Mapping[str, str]) -> None:
        code = self.code
        body = _EntryBody(code)
        start = len(code.lines)
        call = body.call(self.handler, variables)
        code.emit(f"result = {self.wait}{call}")
        if body.generators:
            # Only now is it known which there are; they must be None until they are entered.
            block = [f"    {line}" for line in code.lines[start:]]
            code.lines[start:] = []
            code.emit(f"{' = '.join(name for name, _ in body.generators)} = None", "try:")
            code.lines += block
            self._leave(body.generators)

    def _leave(self, generators: list[tuple[str, Kind]]) -> None:
        """Leave every generator in reverse; each sees the error, failures come together.

        ``close`` does the same from a list; here the way without an error is written out.
        """
        code = self.code
        names = "".join(f"{name}, " for name, _ in generators)
        code.emit(
            "except BaseException as error:",
            f"    {self.wait}{code.constant(_abandon if self.is_async else _abandon_sync, 'abandon')}"
            f"(({names}), error)",
            "    raise",
            "failures = ()",
        )
        twice = code.constant(second_yield_error, "yielded_twice")
        for name, kind in reversed(generators):
            code.emit(
                f"try: {_step(name, kind)}",
                f"except {_stop(kind)}: pass",
                "except BaseException as failure: failures += (failure,)",
                f"else: failures += ({twice}({name}),)",
            )
        code.emit(f"if failures: {code.constant(raise_all, 'raise_all')}(failures)")

    def _write_scoped(self, variables: Mapping[str, str]) -> None:
        """A large graph, or one that asks for its scope, is built into a real Scope."""
        code = self.code
        body = _ScopeBody(code, self.handler)
        task = code.constant(SYNC, "SYNC")
        if self.is_async:
            task = f"{code.constant(current_task, 'current_task')}()"
        code.emit(
            f"scope = {code.constant(self.resolver.scope, 'Scope')}()",
            f"scope.task = {task}",
            "cache = scope.cache = {}",
            "try:",
        )
        code.depth += 1
        call = body.call(self.handler, variables)
        code.emit(f"result = {self.wait}{call}")
        code.depth -= 1
        code.emit(
            "except BaseException as error:",
            f"    {self._close('error')}",
            "    raise",
            self._close("None"),
        )

    def _close(self, error: str) -> str:
        return f"await scope.close({error})" if self.is_async else f"scope.close_sync({error})"


def _open_cache(code: _Code) -> None:
    refuse = code.constant(not_entered, "not_entered")
    code.emit("try: cache = scope.cache", f"except AttributeError: raise {refuse}() from None")


def _is_flat(handler: Binding) -> bool:
    """True when everything fits in local variables of one function."""
    if handler.size > ENTRY_CAP:
        return False
    seen = {handler}
    pending = [handler]
    while pending:
        step = pending.pop()
        if any(item.wish is Wish.SCOPE for item in step.parameters):
            return False
        if any(getattr(edge, "deferred", False) for edge in step.provider.kwargs.values()):
            return False
        for dependency in eager(step.provider):
            if not dependency.is_singleton and dependency not in seen:
                seen.add(dependency)
                pending.append(dependency)
    return True


async def _abandon(generators: Sequence[Any], error: BaseException) -> None:
    await close([item for item in generators if item is not None], error)


def _abandon_sync(generators: Sequence[Any], error: BaseException) -> None:
    close_sync([item for item in generators if item is not None], error)


def _step(steps: str, kind: Kind) -> str:
    return f"await {steps}.__anext__()" if kind is Kind.ASYNC_GENERATOR else f"next({steps})"


def _stop(kind: Kind) -> str:
    return "StopAsyncIteration" if kind is Kind.ASYNC_GENERATOR else "StopIteration"


def _variable(binding: Binding) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", binding.name).lower()
    return re.sub(r"\W+", "_", snake).strip("_")
