"""Pipelines, graphs and sagas as durable runs: every node or step is a claim of its own."""
