"""The conformance suite of HookRegistryProtocol."""

from lexigram.testing.conformance.hooks.spec import HookCapability
from lexigram.testing.conformance.hooks.suite import HookConformance

__all__ = ["HookCapability", "HookConformance"]
