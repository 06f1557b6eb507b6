"""Parallel workers begin with the tests that wait, and share them."""

from collections import Counter

import pytest
from attrs import frozen
from tests.order import deal


@frozen
class Item:
    nodeid: str


def items(module, count=1):
    return [Item(f"tests/{module}.py::test[{number}]") for number in range(count)]


def stretches(found, workers):
    length = len(found) // workers
    return [found[number * length : (number + 1) * length] for number in range(workers)]


def modules(found):
    return list(dict.fromkeys(item.nodeid.split("::")[0] for item in found))


def test_each_worker_begins_with_its_share_of_the_tests_that_wait():
    waiting = [*items("e2e/test_a", 3), *items("e2e/test_b", 3), *items("integration/x/test_c", 3)]
    found = deal([*waiting, *items("unit/test_d", 100)], workers=3)
    assert [modules(part)[0] for part in stretches(found, 3)] == modules(waiting)


def test_the_modules_of_one_double_stay_with_one_worker():
    kafka = [*items("conformance/queue/drivers/test_kafka"), *items("integration/queue/test_kafka")]
    azure = [*items("e2e/test_servicebus"), *items("integration/test_azure_double")]
    found = deal([*kafka, *azure, *items("e2e/test_a"), *items("unit/test_b", 20)], workers=5)
    heads = [part[:2] for part in stretches(found, 5)]
    assert kafka in heads
    assert azure in heads


@pytest.mark.parametrize("workers", [1, 2, 6, 50])
@pytest.mark.parametrize("waiting", [0, 1, 7, 90])
def test_every_test_is_run_once_and_the_order_is_always_the_same(workers, waiting):
    given = [one for n in range(waiting) for one in items(f"e2e/test_{n}")] + items("unit/u", 13)
    found = deal(given, workers)
    assert Counter(found) == Counter(given)
    assert found == deal(given, workers)
