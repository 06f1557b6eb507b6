"""Combine the data of `make cover` and print the modules with the most missed lines and branches.

Arguments: beginnings of paths to look at; without any, all sources.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coverage import Coverage

MAX_MODULES = 25


def main() -> None:
    measured = Coverage()
    if any(Path().glob(".coverage.*")):
        measured.combine(keep=False)
        measured.save()
    measured.load()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        measured.json_report(outfile=file.name)
        report = json.load(file)
    modules = {
        path: module
        for path, module in report["files"].items()
        if path.startswith(tuple(sys.argv[1:]) or "")
    }
    for path in sorted(modules, key=lambda path: -_missed(modules[path]))[:MAX_MODULES]:
        if _missed(modules[path]):
            percent = modules[path]["summary"]["percent_covered"]
            print(f"{_missed(modules[path]):5d} missed, {percent:3.0f} %  {path}")
            print(f"      {', '.join(_ranges(modules[path]))}")
    totals = report["totals"]
    print(
        f"{totals['percent_covered']:.1f} % covered: {totals['missing_lines']} of "
        f"{totals['num_statements']} lines and {totals['missing_branches']} of "
        f"{totals['num_branches']} branches missed in {len(report['files'])} modules"
    )


def _missed(module: dict[str, Any]) -> int:
    summary = module["summary"]
    return int(summary["missing_lines"]) + int(summary["missing_branches"])


def _ranges(module: dict[str, Any]) -> Iterator[str]:
    """Lines that never ran, then branches from lines that did: ``12-15``, ``20->22``."""
    missing, executed = module["missing_lines"], module["executed_lines"]
    first = None
    for at, here in enumerate(missing):
        first = first or here
        following = missing[at + 1] if at + 1 < len(missing) else None
        if following is None or any(here < line < following for line in executed):
            yield str(here) if first == here else f"{first}-{here}"
            first = None
    for start, end in module["missing_branches"]:
        if start not in missing and end not in missing:
            yield f"{start}->{'exit' if end < 0 else end}"


if __name__ == "__main__":
    main()
