"""docs/errors.md is complete: every error class with its code, and one class per code."""

import re
from collections import Counter
from pathlib import Path

import surface

from lexigram.contracts.core import LexigramError

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(?P<code>LEX_ERR_\w+)` \| `(?P<name>\w+)` \| .+ \| .+ \|$", re.MULTILINE)


def error_classes():
    for module in surface.public_modules():
        for name in module.__all__:
            getattr(module, name)  # imports where it is defined: every subclass is known
    pending, found = [LexigramError], {}
    while pending:
        cls = pending.pop()
        if cls.__module__.startswith("lexigram."):
            found[f"{cls.__module__}.{cls.__qualname__}"] = cls
        pending.extend(cls.__subclasses__())
    return found.values()


def test_every_error_class_has_its_own_code():
    codes = Counter(cls.code for cls in error_classes())
    shared = {code for code, count in codes.items() if count > 1}
    assert sorted((cls.code, cls.__name__) for cls in error_classes() if cls.code in shared) == []


def test_the_page_lists_every_error_with_its_code():
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    listed = {(m["code"], m["name"]) for m in ROW.finditer(page)}
    raised = {(cls.code, cls.__name__) for cls in error_classes()}
    assert sorted(raised - listed) == []
    assert sorted(listed - raised) == []
