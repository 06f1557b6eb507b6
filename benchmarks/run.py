"""Run the benchmarks: ``python benchmarks/run.py [area...] [--quick] [--json FILE] [--write]``."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import re
import sys
import time
from pathlib import Path

import harness

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"


def main() -> None:
    areas = sorted(path.parent.name for path in HERE.glob("*/suite.py"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="area", help=f"of {', '.join(areas)}; all")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args()
    if unknown := set(options.areas) - set(areas):
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(areas)}")
    plan = harness.QUICK if options.quick else harness.Plan()
    figures = {"machine": harness.machine(), "areas": {}}
    for area in options.areas or areas:
        suite = importlib.import_module(f"{area}.suite")
        started, facts = time.monotonic(), harness.machine()
        parts = harness.run(_measure(suite, plan))
        print(f"\n{suite.TITLE}: {time.monotonic() - started:.0f} s, {_versions(suite)}")
        figures["areas"][area] = [harness.as_dict(part) for part in parts]
        if options.write:
            _write(area, suite, facts, parts)
    if options.json:
        text = json.dumps(figures, indent=2, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")


async def _measure(suite, plan: harness.Plan) -> list:
    """Measure part by part; each is printed as soon as it is known."""
    parts = []
    async for part in suite.parts(plan):
        print(f"\n{part.markdown()}", flush=True)
        parts.append(part)
    return parts


def _write(area: str, suite, facts: dict[str, str], parts: list) -> None:
    """Replace what stands between the markers of the area; a new area goes to the end."""
    lines = [
        f"## {suite.TITLE}",
        f"{facts['python']} on {facts['system']}, {facts['cores']} cores, "
        f"load {facts['load']} from other programs; {_versions(suite)}.",
        *(part.markdown() for part in parts),
    ]
    begin, end = f"<!-- {area}: begin -->", f"<!-- {area}: end -->"
    section = f"{begin}\n" + "\n\n".join(lines) + f"\n{end}"
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if pattern.search(page):
        page = pattern.sub(lambda _: section, page)
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    PAGE.write_text(page, encoding="utf-8")


def _versions(suite) -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in suite.PEERS)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
