"""The conformance suite of QueueDriverProtocol, one file per capability."""
