"""One-row writes and single statements against plain drivers."""
