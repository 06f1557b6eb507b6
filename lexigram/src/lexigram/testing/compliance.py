"""The name the 0.1 line has for the conformance suite of QueueProtocol."""

from lexigram.testing.conformance.queue import QueueConformance as QueueBackendCompliance

__all__ = ["QueueBackendCompliance"]
