"""One module per document format: each converts bytes to a Document with Markdown."""
