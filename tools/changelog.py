"""Make CHANGELOG.md from the fragments in changelog.d.

python tools/changelog.py            print what the next release brings
python tools/changelog.py 1.2.0      move the fragments into CHANGELOG.md, as version 1.2.0
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG, FRAGMENTS = ROOT / "CHANGELOG.md", ROOT / "changelog.d"
# Kind -> title of its section, in this order.
KINDS = {
    "feature": "New",
    "change": "Changed",
    "removal": "Removed",
    "fix": "Fixed",
    "docs": "Documentation",
}
_NAME = re.compile(r"[\d.]+\.(?P<kind>\w+)\.md")


class ChangelogError(Exception):
    """A fragment cannot be placed, or the version is there already."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="?", help="of the release; without one, print only")
    version = parser.parse_args().version
    try:
        fragments = read_fragments(FRAGMENTS)
        if version is None:
            print(render_section("Unreleased", fragments), end="")
        else:
            release(version, datetime.now(UTC).date(), fragments, CHANGELOG)
    except ChangelogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def read_fragments(folder: Path) -> Mapping[Path, str]:
    """Each fragment with its kind, in the order of their numbers."""
    found: dict[Path, str] = {}
    for file in sorted(folder.glob("*.md"), key=_order):
        if file.name == "README.md":
            continue
        match = _NAME.fullmatch(file.name)
        if match is None or match["kind"] not in KINDS:
            raise ChangelogError(
                f"{file.name} is not a changelog fragment\n"
                f"Fix: name it <number>.<kind>.md, with a kind of {', '.join(KINDS)}"
            )
        if not file.read_text(encoding="utf-8").strip():
            raise ChangelogError(f"{file.name} is empty\nFix: write one or two sentences for users")
        found[file] = match["kind"]
    return found


def render_section(title: str, fragments: Mapping[Path, str]) -> str:
    """Return the text of a release: a list for each kind that has fragments."""
    lines = [f"## {title}", ""]
    for kind, heading in KINDS.items():
        files = [file for file, its_kind in fragments.items() if its_kind == kind]
        if files:
            lines += [f"### {heading}", "", *map(_render_entry, files), ""]
    return "\n".join(lines)


def release(version: str, day: date, fragments: Mapping[Path, str], changelog: Path) -> None:
    """Write the section of a version above those of the releases before, and delete the fragments."""
    text = changelog.read_text(encoding="utf-8")
    if re.search(rf"^## {re.escape(version)}\b", text, re.MULTILINE):
        raise ChangelogError(
            f"{changelog.name} has version {version} already\nFix: choose the next"
        )
    if not fragments:
        raise ChangelogError("there are no fragments to release\nFix: see changelog.d/README.md")
    head, mark, releases = text.partition("\n## ")
    section = render_section(f"{version} ({day:%Y-%m-%d})", fragments)
    changelog.write_text(f"{head.rstrip()}\n\n{section}{mark}{releases}", encoding="utf-8")
    for file in fragments:
        file.unlink()


def _render_entry(file: Path) -> str:
    paragraphs: Sequence[str] = file.read_text(encoding="utf-8").strip().splitlines()
    return "- " + "\n".join(f"  {line}".rstrip() for line in paragraphs).lstrip()


def _order(file: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", file.name)], file.name


if __name__ == "__main__":
    sys.exit(main())
