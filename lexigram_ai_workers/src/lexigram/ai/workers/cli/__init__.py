"""Commands of the AI workers."""
