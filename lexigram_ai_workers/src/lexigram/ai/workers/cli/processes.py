"""Identify processes, and check whether a recorded process still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Fields of /proc/PID/stat after the process name, which is in brackets.
_STATE, _START_TIME = 0, 19


def this_process() -> dict[str, Any]:
    """Return host, pid and start time of this process. Blocks: it may read a file."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _read_start_time(pid)}


def is_elsewhere(process: Mapping[str, Any]) -> bool:
    """True for a process of another machine or container."""
    return bool(process["host"] != socket.gethostname())


def has_ended(process: Mapping[str, Any]) -> bool:
    """True when the process has ended; False for other machines. Blocks: it may read a file."""
    if is_elsewhere(process):
        return False
    if process["started"] is not None:
        return bool(_read_start_time(process["pid"]) != process["started"])
    try:
        os.kill(process["pid"], 0)  # signal 0 only checks
    except ProcessLookupError:
        return True
    except OSError:  # the process belongs to another user
        return False
    return False


def _read_start_time(pid: int) -> str | None:
    """Return the start time, as pids are reused; None if unknown."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no such process, or no /proc
        return None
    fields = facts.rpartition(")")[2].split()
    return None if fields[_STATE] == "Z" else fields[_START_TIME]
