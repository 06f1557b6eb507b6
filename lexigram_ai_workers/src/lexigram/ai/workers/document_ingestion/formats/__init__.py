"""One file per kind of document: bytes to a Document of Markdown."""
