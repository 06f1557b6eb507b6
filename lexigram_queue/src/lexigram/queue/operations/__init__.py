"""Inspect and operate a bus: groups, dead letters, statistics."""
