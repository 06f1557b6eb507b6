"""The routes of the host: given in code, and contributed by installed packages."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from attrs import define, field, frozen
from fastapi import APIRouter, FastAPI
from fastapi.routing import RouteContext, iter_route_contexts

from lexigram.concurrency import as_failure
from lexigram.contracts.web import RouteContributorProtocol
from lexigram.di.container import Resolver
from lexigram.web.errors import WebInjectionError, WebRouteError
from lexigram.web.inject import SERVICE

CONTRIBUTORS_GROUP: Final = "lexigram.web.contributors"
ALL_METHODS: Final = "*"  # what is mounted answers all of them

_PARAMETER = re.compile(r"\{[^{}:]*(:[^{}]*)?\}")
_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class LeftOut:
    """A contributor whose routes are missing, and why."""

    contributor: str
    reason: str


@define
class RouteTable:
    """Puts routers into an application, and knows who took which path."""

    app: FastAPI
    container: Resolver
    left_out: list[LeftOut] = field(factory=list)
    _owners: dict[tuple[str, str], str] = field(factory=dict)
    _ids: set[str] = field(factory=set)

    def include(self, owner: str, routers: Sequence[Any]) -> None:
        """Add routers; WebRouteError or WebInjectionError, with nothing added, when one is wrong."""
        taken: dict[tuple[str, str], str] = {}
        for router in routers:
            if not isinstance(router, APIRouter):
                raise WebRouteError(
                    f"{owner} gave {router!r}, which is no router",
                    hint="give instances of fastapi.APIRouter",
                )
            for route in iter_route_contexts(router.routes):
                self._check_services(route)
                for place in _places(route):
                    self._check_free(place, owner)
                    taken[place] = owner
        for router in routers:
            self.app.include_router(router)
        self._owners.update(taken)

    def contribute(
        self, contributors: Iterable[RouteContributorProtocol], disabled: Sequence[str] = ()
    ) -> None:
        """Add what contributors bring; one that is wrong is reported and left out."""
        for contributor in contributors:
            name = type(contributor).__qualname__
            try:
                name = contributor.contributor_id
                if name in disabled:
                    continue
                if name in self._ids:
                    raise WebRouteError(f"two contributors are called {name}")
                self._ids.add(name)
                self.include(name, contributor.get_routers(self.container))
            except BaseException as error:  # code of others never stops the host
                failure = as_failure(error)
                if failure is None:
                    raise
                self.leave_out(name, failure)

    def leave_out(self, contributor: str, error: Exception) -> None:
        """Report a contributor that cannot be used."""
        reason = f"{type(error).__name__}: {error}"
        self.left_out.append(LeftOut(contributor=contributor, reason=reason))
        _log.error("the routes of %s are left out", contributor, exc_info=error)

    def _check_free(self, place: tuple[str, str], owner: str) -> None:
        method, path = place
        other = self._owners.get(place) or self._owners.get((ALL_METHODS, path))
        if other is not None:
            raise WebRouteError(
                f"{method} {path} is wanted by {owner} and taken by {other}",
                hint="give one of the two routers another prefix",
            )

    def _check_services(self, route: RouteContext) -> None:
        """What an endpoint asks the container for must be bound: reported now, not by a request."""
        for service in _services(getattr(route, "dependant", None)):
            if not self.container.sees(service):
                try:
                    self.container.find(service)
                except Exception as error:
                    raise WebInjectionError(
                        f"{route.path} cannot be given what it asks for: {error}",
                        hint="bind it, and export it from its module: the host sees exports only",
                    ) from error


def installed_contributors(table: RouteTable) -> Iterator[RouteContributorProtocol]:
    """The contributors of installed packages, by name; one that cannot be made is left out."""
    for point in sorted(entry_points(group=CONTRIBUTORS_GROUP), key=lambda point: point.name):
        try:
            made = point.load()()
            if not isinstance(made, RouteContributorProtocol):
                raise WebRouteError(f"{point.value} is no route contributor")
        except BaseException as error:  # code of others never stops the host
            failure = as_failure(error)
            if failure is None:
                raise
            table.leave_out(point.name, failure)
        else:
            yield made


def _places(route: RouteContext) -> Iterator[tuple[str, str]]:
    """Method and path, where the names of parameters make no difference."""
    path = _PARAMETER.sub(r"{\1}", route.path or "")
    for method in route.methods or {ALL_METHODS}:
        if method != "HEAD":
            yield method, path


def _services(dependant: Any) -> Iterator[Any]:
    if dependant is None:
        return
    call = getattr(dependant, "call", None)
    if hasattr(call, SERVICE):
        yield getattr(call, SERVICE)
    for inner in dependant.dependencies:
        yield from _services(inner)
