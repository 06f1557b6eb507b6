"""Definitions of workflows and parameter sets, and the handlers that they name."""
