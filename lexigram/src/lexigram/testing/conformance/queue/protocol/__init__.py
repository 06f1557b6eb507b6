"""The conformance suite of QueueProtocol, one file per capability."""
