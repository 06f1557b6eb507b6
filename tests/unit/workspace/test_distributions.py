import re
import subprocess
import tomllib
from pathlib import Path

import bootstrap
import pytest

ROOT = Path(__file__).resolve().parents[3]
MEMBERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
PROJECTS = {
    member: tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]
    for member in MEMBERS
}


def tracked(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return listed.stdout.split()


def test_the_five_distributions_have_one_version():
    assert len(PROJECTS) == 5
    assert len({project["version"] for project in PROJECTS.values()}) == 1


@pytest.mark.parametrize("member", MEMBERS)
def test_a_distribution_pins_its_siblings_exactly(member):
    siblings = {project["name"] for project in PROJECTS.values()}
    version = PROJECTS[member]["version"]
    for requirement in PROJECTS[member]["dependencies"]:
        name = re.match(r"[\w-]+", requirement)[0]
        if name in siblings:
            assert re.sub(r"\[[\w,]+\]", "", requirement) == f"{name}=={version}"


@pytest.mark.parametrize("member", MEMBERS)
def test_a_distribution_names_the_pythons_that_the_bootstrap_sets_up(member):
    prefix = "Programming Language :: Python :: "
    named = [c.removeprefix(prefix) for c in PROJECTS[member]["classifiers"] if prefix in c]
    assert named == sorted(bootstrap.SUPPORTED)
    assert PROJECTS[member]["requires-python"] == f">={named[0]}"


def test_the_distributions_depend_on_each_other_only_towards_contracts():
    siblings = {project["name"] for project in PROJECTS.values()}
    arrows = {
        project["name"]: {
            name
            for requirement in project["dependencies"]
            if (name := re.match(r"[\w-]+", requirement)[0]) in siblings
        }
        for project in PROJECTS.values()
    }
    extension = {"lexigram", "lexigram-contracts"}
    assert arrows == {
        "lexigram-contracts": set(),
        "lexigram": {"lexigram-contracts"},
        "lexigram-queue": extension,
        "lexigram-workflow": extension,
        "lexigram-ai-workers": extension,
    }


def test_the_namespace_folders_hold_no_init_file():
    intruders = [
        path
        for member in MEMBERS
        for folder in ("src/lexigram", "src/lexigram/ai")
        if (path := ROOT / member / folder / "__init__.py").exists()
    ]
    assert intruders == []


@pytest.mark.parametrize("member", MEMBERS)
def test_type_checkers_may_trust_every_package_of_a_distribution(member):
    source = ROOT / member / "src" / "lexigram"
    packages = {p.parent for p in source.rglob("__init__.py")}
    tops = {p for p in packages if p.parent not in packages}
    assert tops
    assert [p for p in tops if not (p / "py.typed").exists()] == []
    # A single file in the namespace has no place for its own marker.
    assert list(source.glob("*.py")) == []


def test_no_lock_file_with_addresses_is_tracked():
    assert tracked("uv.lock", "*/uv.lock", "poetry.lock", "Pipfile.lock") == []


def test_constraints_hold_names_and_versions_only():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    pin = re.compile(r"[a-z0-9-]+==[\w.+!]+( ; [\w\s'.<>=!()]+)?")
    assert [line for line in pins if not pin.fullmatch(line)] == []


def test_constraints_pin_every_direct_dependency():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    wanted = [*groups["dev"], *(d for p in PROJECTS.values() for d in p["dependencies"])]
    wanted += [
        d for p in PROJECTS.values() for e in p.get("optional-dependencies", {}).values() for d in e
    ]
    names = {re.match(r"[\w-]+", r)[0].lower().replace("_", "-") for r in wanted}
    names -= {project["name"] for project in PROJECTS.values()}
    pinned = {
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().split("\n")
    }
    assert names - pinned == set()


def test_benchmark_peers_stay_out_of_the_constraints():
    peers = {"dishka", "wireup", "that-depends", "rodi"}
    pinned = {
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().split("\n")
    }
    assert peers & pinned == set()


def test_no_registry_address_is_written_into_a_tracked_file():
    address = re.compile(r"(?i)(index|registry|find.links)[\w-]*\s*[=:]\s*\"?(https?|file)://")
    found = [
        path
        for path in tracked()
        if (ROOT / path).is_file()
        and path.endswith((".toml", ".txt", ".cfg", ".ini", ".yaml", ".yml", ".sh", "Makefile"))
        and address.search((ROOT / path).read_text(encoding="utf-8"))
    ]
    assert found == []


def test_changelog_fragments_are_named_by_issue_and_kind():
    name = re.compile(r"\d+(\.\d+)?\.(feature|fix|change|removal|docs)\.md")
    fragments = [p.name for p in (ROOT / "changelog.d").iterdir() if p.name != "README.md"]
    assert [f for f in fragments if not name.fullmatch(f)] == []
