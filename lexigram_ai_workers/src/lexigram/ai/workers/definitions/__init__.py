"""The shipped workflows and parameter sets, as YAML; see ``steps``."""
