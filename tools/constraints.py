"""Resolve every run-time and development dependency into constraints.txt, without any address."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "constraints.txt"
HEADER = """\
# Versions every environment of this repository is installed with (Python 3.11 to 3.13).
# Names and versions only. Made by `make constraints`; not edited by hand.
"""


def main() -> None:
    projects = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("lexigram*/pyproject.toml"))
    names = [argument for path in projects for argument in ("--no-emit-package", _name(path))]
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--upgrade"),
        *("--python-version", "3.11", "--no-header", "--no-annotate", "--no-emit-index-url"),
        *(
            "--no-emit-find-links",
            "--group",
            "dev",
            "--group",
            "doubles",
            "--group",
            "servers",
            "--all-extras",
            *names,
            *projects,
        ),
    ]
    environment = {**os.environ, "UV_SYSTEM_CERTS": "1"}
    resolved = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    TARGET.write_text(HEADER + resolved, encoding="utf-8")
    print(f"{TARGET.name}: {len(resolved.splitlines())} pins")


def _name(project: str) -> str:
    return project.split("/", maxsplit=1)[0].replace("_", "-")


if __name__ == "__main__":
    main()
