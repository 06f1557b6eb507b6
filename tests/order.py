"""The order of the tests for parallel workers: those that wait first, a share for each worker.

pytest-xdist gives each worker one stretch of the list. A worker that is done takes tests from the
end of the longest stretch: there have to be the short ones. In the order of the folders one worker
has nearly all tests that wait, for processes and leases, and the processors stand still at the end.
"""

import re
from collections.abc import Sequence
from itertools import groupby, islice
from pathlib import PurePosixPath

import pytest

# Where tests wait most of the time, or start processes.
WAITING = ("tests/e2e", "tests/integration", "tests/conformance/queue", "tests/docs")
# Each worker that tests one of these starts a double of it: one worker tests all of its modules.
DOUBLED = re.compile("kafka|sqs|azure|servicebus|gcp|pubsub")
SYNONYMS = {"servicebus": "azure", "pubsub": "gcp"}


def deal(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in stretches of the same length, each of them with the tests that wait first."""
    waiting: dict[str, list[pytest.Item]] = {}
    others: list[pytest.Item] = []
    for module, tests in groupby(items, key=lambda item: item.nodeid.partition("::")[0]):
        if module.startswith(WAITING):
            waiting.setdefault(_group(module), []).extend(tests)
        else:
            others.extend(tests)
    piles: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, group in enumerate(waiting.values()):
        piles[number % workers] += group
    rest, left = iter(others), len(items)
    for number, pile in enumerate(piles):
        length = left // (workers - number)
        pile.extend(islice(rest, max(0, length - len(pile))))
        left -= length
    return [*(item for pile in piles for item in pile), *rest]


def _group(module: str) -> str:
    """The double that the module uses, or the module."""
    found = DOUBLED.search(PurePosixPath(module).name)
    return SYNONYMS.get(found[0], found[0]) if found else module
