"""Dependency injection: container, modules, providers, markers."""

from lexigram.contracts.core.di import ServiceScope
from lexigram.di._resolver import Resolver
from lexigram.di._visibility import Conditions
from lexigram.di.binding import unbound
from lexigram.di.container import Container
from lexigram.di.decorators import inject, injectable, scoped, singleton, transient
from lexigram.di.markers import Arg, AsyncFactory, Factory, Inject, Lazy, Named
from lexigram.di.module import (
    DynamicModule,
    Module,
    ModuleGraph,
    ModuleLike,
    global_module,
    module,
)
from lexigram.di.provider import Provider, ProviderPriority, ProviderState
from lexigram.di.scope import Scope

__all__ = [
    "Arg",
    "AsyncFactory",
    "Conditions",
    "Container",
    "DynamicModule",
    "Factory",
    "Inject",
    "Lazy",
    "Module",
    "ModuleGraph",
    "ModuleLike",
    "Named",
    "Provider",
    "ProviderPriority",
    "ProviderState",
    "Resolver",
    "Scope",
    "ServiceScope",
    "global_module",
    "inject",
    "injectable",
    "module",
    "scoped",
    "singleton",
    "transient",
    "unbound",
]
