"""Which process this is, and whether one that was noted down still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Fields of /proc/PID/stat after the name, which stands in brackets and may have any signs.
_STATE, _STARTED = 0, 19


def this_process() -> dict[str, Any]:
    """What names this process among all that ever were. For a thread: it may read a file."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _started(pid)}


def has_ended(process: Mapping[str, Any]) -> bool:
    """True when it is certain; of other machines nothing is. For a thread: it may read a file."""
    if process["host"] != socket.gethostname():
        return False
    if process["started"] is not None:
        return bool(_started(process["pid"]) != process["started"])
    try:
        os.kill(process["pid"], 0)  # sends nothing, only looks
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to somebody else
        return False
    return False


def _started(pid: int) -> str | None:
    """When it was started: a number alone may be another process by now. None: not known."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # there is no such process, or no /proc
        return None
    fields = facts.rpartition(")")[2].split()
    return None if fields[_STATE] == "Z" else fields[_STARTED]
