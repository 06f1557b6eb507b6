"""Durable runs over HTTP, under ``/api/v1``."""
