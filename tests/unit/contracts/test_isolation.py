import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "lexigram_contracts" / "src"
STANDARD = sys.stdlib_module_names | {"lexigram", "__main__"}


def modules_after(statements):
    """The modules loaded by the statements, in a process that sees nothing but contracts."""
    code = (
        f"import json, sys; sys.path.insert(0, {str(SOURCE)!r})\n"
        f"{statements}\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    # -I and -S: no site-packages, no environment, no current folder on the path.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def every_module():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_imports_alone_and_loads_only_the_standard_library():
    names = list(every_module())
    loaded = modules_after("".join(f"import {name}\n" for name in names))
    assert set(names) <= set(loaded)
    assert {name.partition(".")[0] for name in loaded} - STANDARD == set()


def contracts_loaded_by(statement):
    return {name for name in modules_after(statement) if name.startswith("lexigram.contracts.")}


@pytest.mark.parametrize("package", ["lexigram.contracts", "lexigram.contracts.core"])
def test_importing_the_root_or_the_core_loads_no_contract(package):
    assert contracts_loaded_by(f"import {package}") <= {
        "lexigram.contracts._lazy",
        "lexigram.contracts.core",
    }


def test_a_name_of_the_core_loads_its_own_module_only():
    assert contracts_loaded_by("from lexigram.contracts.core import HookPriority") == {
        "lexigram.contracts._lazy",
        "lexigram.contracts.core",
        "lexigram.contracts.core.hooks",
    }


@pytest.mark.parametrize("domain", ["events", "infra", "observability", "queue", "workflow"])
def test_no_module_of_the_core_loads_another_domain(domain):
    names = [name for name in every_module() if name.startswith("lexigram.contracts.core")]
    loaded = contracts_loaded_by("".join(f"import {name}\n" for name in names))
    assert not {name for name in loaded if name.startswith(f"lexigram.contracts.{domain}")}
