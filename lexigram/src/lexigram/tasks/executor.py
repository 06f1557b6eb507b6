"""The handlers of a process by name, and the call of one for a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from lexigram.contracts.infra.tasks.errors import JobRefusedError, NoHandlerError
from lexigram.contracts.infra.tasks.protocols import JobProtocol
from lexigram.tasks.handlers import Handler, Services, definition_of


class TaskExecutor:
    """Implements TaskExecutorProtocol; ``handlers`` is what workers are given."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}

    async def execute(self, task: JobProtocol) -> Any:
        """Call the handler of the job's name with its arguments."""
        return await found(self.handlers, task.name)(*task.args, **task.kwargs)

    def register_handler(self, task_name: str, handler: Callable[..., Any]) -> None:
        """Let a function do the jobs of that name; replaces the one before."""
        self.handlers[task_name] = (
            handler if isinstance(handler, Handler) else Handler(definition_of(handler, task_name))
        )

    def get_handler(self, task_name: str) -> Callable[..., Any] | None:
        """The handler, or None."""
        return self.handlers.get(task_name)

    def declared(self, task_name: str) -> Mapping[str, Any]:
        """What the handler of a name declares about its jobs; nothing for an unknown name."""
        known = self.handlers.get(task_name)
        return {} if known is None else known.definition.settings

    def add(self, *functions: Any, services: Services | None = None) -> None:
        """Take functions declared with ``@job``; a second one of a name is refused."""
        for function in functions:
            definition = definition_of(function)
            known = self.handlers.get(definition.name)
            if known is not None and known.definition.function is not function:
                raise JobRefusedError(
                    f"two handlers are named {definition.name!r}: {_place(known.definition.function)}"
                    f" and {_place(function)}",
                    details={"name": definition.name},
                    hint='name one of them otherwise: @job("other_name")',
                )
            self.handlers[definition.name] = Handler(definition, services)


def found(handlers: dict[str, Any], name: str) -> Any:
    """The handler of a name; the error lists what there is."""
    handler = handlers.get(name)
    if handler is not None:
        return handler
    near = get_close_matches(name, handlers, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    raise NoHandlerError(
        f"no handler has the name {name!r}{meant}",
        details={"name": name, "known": sorted(handlers)},
        hint='declare one with @job("' + name + '") and give it to TasksModule.scope(...)',
    )


def _place(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"
