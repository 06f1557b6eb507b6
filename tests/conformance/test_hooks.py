from lexigram.hooks import HookRegistry
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.hooks import HookConformance

TestHookRegistry = conformance_suite(HookConformance, HookRegistry)
