"""A queue of jobs on both databases."""

import pytest

from lexigram.tasks import SqlTaskQueue


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def db(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def queue(db):
    return SqlTaskQueue(db, poll=0.1)
