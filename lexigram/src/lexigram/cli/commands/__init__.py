"""The built-in commands, one module each; the attribute ``app`` is the command."""
