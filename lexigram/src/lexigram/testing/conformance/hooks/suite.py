"""All that a hook registry promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.hooks.actions import ActionsSpec
from lexigram.testing.conformance.hooks.filters import FiltersSpec
from lexigram.testing.conformance.hooks.once import OnceSpec
from lexigram.testing.conformance.hooks.order import OrderSpec
from lexigram.testing.conformance.hooks.removal import RemovalSpec


class HookConformance(ActionsSpec, FiltersSpec, OrderSpec, OnceSpec, RemovalSpec):
    """Run it on a hook registry: ``conformance_suite(HookConformance, MyRegistry)``."""
