"""Hooks: named or typed points where an application listens in or changes a value."""

from lexigram.contracts.core.hooks import HookPriority, HookRegistryProtocol
from lexigram.hooks.registry import HookRegistry

__all__ = ["HookPriority", "HookRegistry", "HookRegistryProtocol"]
