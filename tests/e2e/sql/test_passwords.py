"""A PostgreSQL that checks passwords; it is this test's own."""

import traceback

import pytest

from lexigram.di.errors import ProviderError
from lexigram.sql import Database, DatabaseAccessError, SqlConfig, SqlModule
from lexigram.testing import boot

pytestmark = pytest.mark.anyio

RIGHT, WRONG = "correct horse", "hunter2 battery"


@pytest.fixture
def server(start_postgres):
    return start_postgres(password=RIGHT)


def url(server, password, user="postgres"):
    secret = "" if password is None else f":{password.replace(' ', '%20')}"
    return f"postgresql://{user}{secret}@{server.address}/postgres"


async def test_the_right_password_opens_the_database(server):
    async with Database(url(server, RIGHT)) as db, db.listen("news") as news:
        await db.notify("news", "x")
        assert await news.wait(timeout=10) in {"", "x"}


@pytest.mark.parametrize("user", ["postgres", "nobody"])
async def test_a_wrong_password_is_explained_and_never_shown(server, user, caplog, capfd):
    with pytest.raises(DatabaseAccessError, match=f'authentication failed for user "{user}"') as c:
        await Database(url(server, WRONG, user)).connect()
    assert "password" in c.value.hint
    assert "sql.url" in c.value.hint
    assert "***" in c.value.details["database"]
    told = [*shown(c.value), caplog.text, *capfd.readouterr()]
    assert not any(secret in text for text in told for secret in (WRONG, "hunter2"))


async def test_a_missing_password_is_explained(server):
    with pytest.raises(DatabaseAccessError, match="password") as caught:
        await Database(url(server, None)).connect()
    assert "sql.url" in caught.value.hint


async def test_an_application_does_not_start_with_a_wrong_password_and_does_not_show_it(server):
    with pytest.raises(ProviderError, match="authentication failed") as caught:
        async with boot(SqlModule.configure(SqlConfig(url=url(server, WRONG)))):
            pytest.fail("started")
    assert not any("hunter2" in text for text in shown(caught.value))


def shown(error):
    """Whatever a user or a log may see of an error and its causes."""
    return [*traceback.format_exception(error), repr(error), str(getattr(error, "details", ""))]
