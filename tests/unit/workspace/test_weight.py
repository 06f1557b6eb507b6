"""What ``pip install lexigram`` brings: few packages, and few megabytes."""

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
MAX_PACKAGES = 24
MAX_MEGABYTES = 60


def required_by(name):
    """The distributions that one without extras brings, itself among them."""
    found, pending = {name}, [Requirement(name)]
    while pending:
        wanted = pending.pop()
        for text in distribution(wanted.name).requires or ():
            requirement = Requirement(text)
            extras = wanted.extras or {""}
            if requirement.marker is not None and not any(
                requirement.marker.evaluate({"extra": extra}) for extra in extras
            ):
                continue
            if (required := canonicalize_name(requirement.name)) not in found:
                found.add(required)
                pending.append(requirement)
    return found


def size_of(name):
    """The bytes of an installed distribution; ours are installed as links to their sources."""
    if name.startswith("lexigram"):
        folder = ROOT / name.replace("-", "_") / "src"
        files = [file for file in folder.rglob("*") if file.is_file()]
    else:
        files = [Path(file.locate()) for file in distribution(name).files or ()]
    return sum(file.stat().st_size for file in files if file.exists())


def test_the_core_alone_is_light():
    packages = required_by("lexigram")
    assert {"lexigram", "lexigram-contracts", "dependency-injector", "typer"} <= packages
    assert len(packages) <= MAX_PACKAGES, sorted(packages)
    sizes = {name: size_of(name) / 2**20 for name in packages}
    assert min(sizes.values()) > 0
    assert sum(sizes.values()) <= MAX_MEGABYTES, sizes


def test_the_extensions_bring_what_the_core_alone_does_not():
    assert {"sqlalchemy", "alembic"} <= required_by("lexigram-workflow")
    assert "opendal" in required_by("lexigram-ai-workers")
