"""Run the fault tests of one area, or of all, with full counts, and write docs/evidence/AREA.txt.

    python -m tests.chaos            every area, one after the other
    python -m tests.chaos queue      one area; other arguments go to pytest

An area is the folder of a test below tests/unit, tests/integration and so on. The file begins with
the command, the commit and the number of rounds, so that it can be made again.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
ROUNDS = "LEX_CHAOS_ROUNDS"
# Every folder that is not named here belongs to the core.
AREAS = ("queue", "durable", "workflow", "ai", "core")


def main() -> int:
    wanted = [word for word in sys.argv[1:] if word in AREAS]
    others = [word for word in sys.argv[1:] if word not in AREAS]
    os.environ.setdefault(ROUNDS, "100")
    return max(run_area(area, others) for area in wanted or AREAS)


def run_area(area: str, arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-m", "chaos", "-s", "-q", "--no-header"]
    command += ["--durations=5", *arguments]
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    with (
        (EVIDENCE / f"{area}.txt").open("w", encoding="utf-8") as evidence,
        subprocess.Popen(
            [*command, *folders_of(area)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        evidence.write(describe(area, arguments))
        for line in process.stdout or ():
            print(line, end="", flush=True)
            evidence.write(line)
        return process.wait()


def folders_of(area: str) -> list[str]:
    """The test folders of an area, relative to the root of the repository."""
    return sorted(
        folder.relative_to(ROOT).as_posix()
        for folder in ROOT.glob("tests/[cdeiu]*/*")
        if folder.is_dir() and area_of(folder) == area and any(folder.rglob("test_*.py"))
    )


def area_of(folder: Path) -> str:
    return folder.name if folder.name in AREAS else "core"


def describe(area: str, arguments: list[str]) -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    changed = " with uncommitted changes" if _git("status", "--porcelain", "--untracked=no") else ""
    options = f" ARGS='{' '.join(arguments)}'" if arguments else ""
    load = os.getloadavg()[0]
    return (
        f"{ROUNDS}={os.environ[ROUNDS]} make chaos AREA={area}{options}\n"
        f"commit {commit}{changed}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load {load:.1f} at the start\n\n"
    )


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
