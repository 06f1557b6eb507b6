"""Workflows and parameter sets that come with the package, as YAML; see ``steps``."""
