"""Code of pages that the type checkers read as strict: tests/typing has it, and it is the same."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "block", "file"),
    [("docs/how-to/add-a-cli-command.md", "shop_cli.py", "tests/typing/contributor.py")],
)
def test_the_block_of_the_page_is_what_the_type_checkers_read(page, block, file):
    text = (ROOT / page).read_text(encoding="utf-8")
    [code] = re.findall(
        rf"^```python file={re.escape(block)}\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    first, *rest = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert first == "# pyright: strict"
    # Here lexigram is a package of its own, there it is installed: imports are grouped differently.
    assert list(filter(None, rest)) == list(filter(None, code.splitlines()))
