"""Find the function that a definition names: registered, by alias, or by dotted path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeAlias

from lexigram.workflow.durable.definitions._aliases import SOLIPLEX_ALIASES

Function: TypeAlias = Callable[..., Any]

PREFIXES_SETTING = "workflow.durable.handler_prefixes"


class HandlerFault(LookupError):
    """Why a name does not resolve to a handler; becomes a problem with a place."""

    def __init__(self, message: str, guess: str | None = None, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        # not in this process; another worker may have it
        self.is_absent = is_absent
        # a similar name that exists
        self.guess = guess


class HandlerCatalog(Mapping[str, Function]):
    """Functions by the names that plans use; give it to a Worker as ``handlers``.

    Registered names come first, then aliases, then ``package.module.function``, which is
    imported at the first request.
    """

    def __init__(
        self,
        registered: Mapping[str, Function] | None = None,
        *,
        aliases: Mapping[str, str] = SOLIPLEX_ALIASES,
        prefixes: Sequence[str] = (),
    ) -> None:
        self._registered = dict(registered or {})
        self._aliases = dict(aliases)
        self.prefixes = tuple(prefixes)
        self._found: dict[str, Function] = {}
        self._faults: dict[str, HandlerFault] = {}

    def register(self, name: str, function: Function) -> None:
        """Make a function known by a name; uploads may use it too."""
        self._registered[name] = function

    def canonical(self, name: str) -> str:
        """The name that plans keep: an alias is replaced by what it stands for.

        Artifacts are keyed by it, so an alias and its target share them.
        """
        if name in self._registered:
            return name
        if name in self._aliases:
            return self._aliases[name]
        module, dot, function = name.rpartition(".")
        replaced = self._aliases.get(f"{module}.*") if dot else None
        return name if replaced is None else f"{replaced.removesuffix('*')}{function}"

    def find(self, name: str, *, is_limited: bool = False) -> Function:
        """The function. Raises HandlerFault with the problem of the name.

        ``is_limited`` holds it to the prefixes; without any, only registered names are left.
        """
        wanted = self.canonical(name)
        if wanted in self._registered:
            return self._registered[wanted]
        if is_limited and not self._is_allowed(wanted):
            raise HandlerFault(self._refusal(name, wanted))
        function = self._import(wanted)
        home = getattr(function, "__module__", None) or ""
        # The name may be in an allowed module by an import: `from os import system`.
        if is_limited and not self._is_allowed(f"{home}."):
            raise HandlerFault(self._refusal(name, f"{home}.{wanted.rpartition('.')[2]}"))
        return function

    def _is_allowed(self, name: str) -> bool:
        return any(name.startswith(f"{prefix.rstrip('.')}.") for prefix in self.prefixes)

    def _refusal(self, name: str, real: str) -> str:
        is_other = "" if real == name else f", which is {real},"
        allowed = ", ".join(self.prefixes) or "nothing"
        return f"handler {name!r}{is_other} is not allowed: {PREFIXES_SETTING} allows {allowed}"

    def _import(self, name: str) -> Function:
        if name in self._found:
            return self._found[name]
        module_name, _, attribute = name.rpartition(".")
        if not module_name:
            near = get_close_matches(name, self._registered, n=1)
            raise HandlerFault(
                f"no handler {name!r} is registered, and it is not package.module.function",
                near[0] if near else None,
                is_absent=True,
            )
        function = getattr(_module(module_name, name), attribute, None)
        if function is None:
            raise _no_function(module_name, attribute)
        if not callable(function) or inspect.isclass(function):
            raise HandlerFault(f"{name!r} is no function but {type(function).__name__}")
        self._found[name] = function
        return self._found[name]

    # --- for a Worker --------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Function:
        wanted = self.canonical(name)
        found = self._registered.get(wanted) or self._found.get(wanted)
        if found is not None:
            return found
        try:
            # A worker repeats its lookups; a module that fails is imported only once.
            if (fault := self._faults.get(wanted)) is not None:
                raise fault
            return self._import(wanted)
        except HandlerFault as fault:
            self._faults[wanted] = fault
            raise KeyError(name) from fault

    def __iter__(self) -> Iterator[str]:
        return iter({**self._registered, **self._found})

    def __len__(self) -> int:
        return len({**self._registered, **self._found})


def _module(module_name: str, name: str) -> Any:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise HandlerFault(
                f"there is no module {missing!r}: install it, or correct the path {name!r}",
                is_absent=True,
            ) from error
        text = f"{module_name} needs the module {missing!r}: install it"
        raise HandlerFault(text, is_absent=True) from error
    except Exception as error:  # a module of others may raise anything while it is made
        reason = f"{type(error).__name__}: {error}"
        text = f"{module_name} cannot be imported: {reason}"
        raise HandlerFault(text, is_absent=True) from error


def _no_function(module_name: str, attribute: str) -> HandlerFault:
    module = import_module(module_name)
    there = [name for name, value in vars(module).items() if inspect.isroutine(value)]
    near = get_close_matches(attribute, there, n=1)
    guess = f"{module_name}.{near[0]}" if near else None
    text = f"{module_name} has no function {attribute!r}"
    return HandlerFault(text, guess, is_absent=True)
