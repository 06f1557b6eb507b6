"""Names for holders of leases: never the same twice, and readable for people."""

from __future__ import annotations

import os
import secrets
import socket


def lease_token() -> str:
    """``host:pid:random``; the random part tells two holders in one process apart."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
