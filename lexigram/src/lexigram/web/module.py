"""The web host as a module: ``WebModule.configure(routers=[...])`` once at the root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lexigram.contracts.web import RouteContributorProtocol
from lexigram.di import DynamicModule, Module, module
from lexigram.web.config import WebConfig
from lexigram.web.host import WebHost
from lexigram.web.provider import WebProvider

if TYPE_CHECKING:
    from fastapi import APIRouter

_EXPORTS = [WebConfig, WebHost]


@module(providers=[WebProvider], exports=_EXPORTS, is_global=True)
class WebModule(Module):
    """The web host; the bare class reads section ``web`` and has the routes of installed packages."""

    @classmethod
    def configure(
        cls,
        config: WebConfig | None = None,
        *,
        routers: Sequence[APIRouter] = (),
        contributors: Iterable[RouteContributorProtocol] = (),
        statuses: Mapping[type[Exception], int] | None = None,
    ) -> DynamicModule:
        """With an explicit configuration, or with section ``web`` when None.

        ``routers`` are FastAPI's; ``contributors`` join those of installed packages;
        ``statuses`` says which status an exception of yours is answered with.
        """
        return _of(cls, config, routers, contributors, statuses, installed=True)

    @classmethod
    def stub(
        cls,
        config: WebConfig | None = None,
        *,
        routers: Sequence[APIRouter] = (),
        contributors: Iterable[RouteContributorProtocol] = (),
        statuses: Mapping[type[Exception], int] | None = None,
    ) -> DynamicModule:
        """For tests: no file or variable is read, a free port is taken, no package is asked."""
        given = config if config is not None else WebConfig(port=0)
        return _of(cls, given, routers, contributors, statuses, installed=False)


def _of(
    cls: type[Module],
    config: WebConfig | None,
    routers: Sequence[Any],
    contributors: Iterable[RouteContributorProtocol],
    statuses: Mapping[type[Exception], int] | None,
    *,
    installed: bool,
) -> DynamicModule:
    provider = WebProvider(
        config,
        routers=routers,
        contributors=contributors,
        installed=installed,
        statuses=statuses,
    )
    return DynamicModule(module=cls, providers=[provider], exports=_EXPORTS, is_global=True)
