"""Collect what installed packages add to the command line; a broken one is noted, not fatal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import field, frozen

from lexigram.cli import built_in
from lexigram.cli.errors import ContributorError
from lexigram.cli.failures import summary
from lexigram.concurrency import call_sync
from lexigram.contracts.cli import (
    CommandContribution,
    DoctorCheckContribution,
    GeneratorDefinition,
    HealthCheckContribution,
    ShellContextContribution,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "lexigram.cli.contributors"

C = TypeVar("C")


@frozen(kw_only=True)
class BrokenContributor:
    """A contributor that is left out, and why."""

    contributor: str
    # The entry point as its package wrote it.
    source: str
    reason: str


@frozen(kw_only=True)
class Conflict:
    """A name that several contributors wanted; the winner keeps it."""

    kind: str
    name: str
    winner: str
    losers: tuple[str, ...]


@frozen(kw_only=True)
class Contributors:
    """Everything contributed, by name."""

    commands: dict[str, CommandContribution] = field(factory=dict)
    generators: dict[str, GeneratorDefinition] = field(factory=dict)
    health_checks: dict[str, HealthCheckContribution] = field(factory=dict)
    doctor_checks: dict[str, DoctorCheckContribution] = field(factory=dict)
    shell_context: dict[str, ShellContextContribution] = field(factory=dict)
    names: tuple[str, ...] = ()
    broken: tuple[BrokenContributor, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @classmethod
    def discover(cls, entry_points: Iterable[EntryPoint] | None = None) -> Contributors:
        """Load every contributor; in order of their names, so that winners do not change."""
        collector = _Collector()
        for entry in sorted(_installed() if entry_points is None else entry_points):
            collector.take(entry)
        return collector.result()

    @property
    def trouble(self) -> str:
        """One line about what is wrong; empty when nothing is."""
        parts = [
            f"contributor {item.contributor} is broken ({item.reason})" for item in self.broken
        ]
        parts += [f"{item.kind} {item.name} is wanted twice" for item in self.conflicts]
        return "; ".join(parts)

    def paths(self) -> Iterator[tuple[str, str]]:
        """(contributor, path) of all code that was named."""
        for command in self.commands.values():
            yield command.contributor, command.app_factory_path
        for generator in self.generators.values():
            yield generator.contributor, generator.generator_path
        for checks in (self.health_checks, self.doctor_checks):
            yield from ((item.contributor, item.check_path) for item in checks.values())
        for name in self.shell_context.values():
            yield name.contributor, name.factory_path


def load_contributed(contributor: str, path: str) -> Any:
    """The object a contributor named by path; the error says whose it is."""
    try:
        return call_sync(load_path, path)
    except Exception as error:
        raise ContributorError(
            f"{path}, named by the contributor {contributor}, cannot be loaded",
            hint=f"update or remove the package that brings {contributor}",
        ) from error


class _Collector:
    """Takes contributors one by one and remembers who was first."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}
        self._owners: dict[tuple[str, str], str] = {
            **{("command", name): built_in.OWNER for name in built_in.COMMANDS},
            **{("shell name", name): built_in.OWNER for name in built_in.SHELL_NAMES},
        }
        self._losers: dict[tuple[str, str], list[str]] = {}
        self._names: list[str] = []
        self._broken: list[BrokenContributor] = []

    def take(self, entry: EntryPoint) -> None:
        try:
            # All of it before any of it: who raises is left out as a whole.
            name, parts = call_sync(_load_contributor, entry)
        except Exception as error:  # noqa: BLE001 - code we do not own
            self._leave_out(entry, summary(error))
            return
        if name in self._names:
            self._leave_out(entry, f"the id {name!r} is taken by another contributor")
            return
        self._names.append(name)
        for kind, items in parts.items():
            self._keep(kind, items, name)

    def result(self) -> Contributors:
        return Contributors(
            commands=self._kept.get("command", {}),
            generators=self._kept.get("generator", {}),
            health_checks=self._kept.get("health check", {}),
            doctor_checks=self._kept.get("doctor check", {}),
            shell_context=self._kept.get("shell name", {}),
            names=tuple(self._names),
            broken=tuple(self._broken),
            conflicts=tuple(
                Conflict(
                    kind=kind, name=name, winner=self._owners[kind, name], losers=tuple(losers)
                )
                for (kind, name), losers in self._losers.items()
            ),
        )

    def _keep(self, kind: str, items: list[Any], owner: str) -> None:
        for item in items:
            if (kind, item.name) in self._owners:
                self._losers.setdefault((kind, item.name), []).append(owner)
            else:
                self._owners[kind, item.name] = owner
                self._kept.setdefault(kind, {})[item.name] = item

    def _leave_out(self, entry: EntryPoint, reason: str) -> None:
        self._broken.append(
            BrokenContributor(contributor=entry.name, source=entry.value, reason=reason)
        )


def _load_contributor(entry: EntryPoint) -> tuple[str, dict[str, list[Any]]]:
    """The id of a contributor, and what it brings by kind."""
    contributor = entry.load()()
    return str(contributor.contributor_id), {
        "command": _list_items(contributor.get_commands(), CommandContribution),
        "generator": _list_items(contributor.get_generators(), GeneratorDefinition),
        "health check": _list_items(contributor.get_health_checks(), HealthCheckContribution),
        "doctor check": _list_items(contributor.get_doctor_checks(), DoctorCheckContribution),
        "shell name": _list_items(contributor.get_shell_context(), ShellContextContribution),
    }


def _installed() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _list_items(items: Iterable[Any], kind: type[C]) -> list[C]:
    found = list(items)
    for item in found:
        if not isinstance(item, kind):
            raise TypeError(f"{item!r} is not a {kind.__name__}")
    return found


def load_path(path: str) -> Any:
    """The object at ``package.module:attribute`` (dots go deeper)."""
    module, colon, attributes = path.partition(":")
    if not (module and colon and attributes):
        raise ValueError(f"{path!r} is not a path: package.module:attribute is expected")
    found: Any = import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found
