"""Write the table of docs/how-to/choose-a-broker.md from what the drivers themselves declare.

``python tools/broker_table.py`` writes it; ``--check`` says whether it is as it would be written.
"""

import importlib
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from lexigram.contracts.queue import CORE_CAPABILITIES, Capability

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-to" / "choose-a-broker.md"
PROJECT = ROOT / "lexigram_queue" / "pyproject.toml"
BEGIN, END = "<!-- capabilities: begin -->\n", "<!-- capabilities: end -->"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    written = with_table(page, table(declared()))
    if "--check" not in sys.argv:
        PAGE.write_text(written, encoding="utf-8")
    elif page != written:
        print(f"{PAGE.relative_to(ROOT)} is old: python tools/broker_table.py writes it")
        return 1
    return 0


def declared() -> dict[str, frozenset[Capability]]:
    """Capabilities by driver; from the project file, which is right also before an install."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    drivers: Mapping[str, str] = project["entry-points"]["lexigram.queue.drivers"]
    return {
        name: importlib.import_module(target.partition(":")[0]).CAPABILITIES
        for name, target in sorted(drivers.items())
    }


def table(drivers: Mapping[str, frozenset[Capability]]) -> str:
    """A row per capability; the core is one row, as every driver has it."""
    rows = [["", *(f"`{name}`" for name in drivers)], ["---"] * (len(drivers) + 1)]
    core = all(found >= CORE_CAPABILITIES for found in drivers.values())
    assert core, "a driver leaves out what none may leave out"
    rows.append(["the core, see below", *("yes" for _ in drivers)])
    for capability in Capability:
        if capability not in CORE_CAPABILITIES:
            marks = ("yes" if capability in found else "–" for found in drivers.values())
            rows.append([f"`{capability.value}`", *marks])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_table(page: str, text: str) -> str:
    """The page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(main())
