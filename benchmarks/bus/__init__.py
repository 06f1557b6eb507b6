"""The bus, broker by broker."""
