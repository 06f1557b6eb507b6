"""A page of another site can make a browser send requests here; they change nothing."""

import pytest
from fastapi import APIRouter

from lexigram.config import SecretStr
from lexigram.web import WebConfig

KEY = "a-key-that-is-long-enough"
PROXY = {"X-Forwarded-User": "ada"}
FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "http://localhost:1"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "something new"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
]
OWN = [
    {},
    {"Origin": "http://localhost"},
    {"Origin": "https://LOCALHOST"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
]
UNSAFE = ("POST", "PUT", "PATCH", "DELETE", "BREW")
SAFE = ("GET", "HEAD", "OPTIONS")


@pytest.fixture
def router():
    made = APIRouter()

    @made.api_route("/thing", methods=[*UNSAFE, *SAFE])
    async def thing() -> str:
        return "done"

    return made


async def answers(client, methods, headers, **sent):
    headers = {"Host": "localhost", **headers}
    return {
        (answer.status_code, answer.json()["code"] if answer.status_code >= 400 else None)
        for method in methods
        for answer in [await client.request(method, "/thing", headers=headers, **sent)]
    }


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_page_of_another_site_changes_nothing_on_a_host_without_keys(
    serve, router, headers
):
    async with serve(router) as (client, _):
        refused = {(403, "LEX_ERR_WEB_012")}
        bodies = ({}, {"data": {"a": "b"}}, {"json": {}}, {"files": {"a": b"b"}})
        for body in bodies:
            assert await answers(client, UNSAFE, headers, **body) == refused
        assert await answers(client, SAFE, headers) == {(200, None)}


@pytest.mark.parametrize("headers", OWN, ids=str)
async def test_a_page_of_the_host_and_what_is_no_browser_may_change_things(serve, router, headers):
    async with serve(router) as (client, _):
        assert await answers(client, UNSAFE, headers) == {(200, None)}


async def test_a_page_of_another_site_does_not_use_the_session_of_a_proxy(serve, router):
    config = WebConfig(port=0, trusted_proxies=("127.0.0.1",))
    async with serve(router, config=config) as (client, _):
        for headers in FOREIGN:
            given = await answers(client, UNSAFE, {**PROXY, **headers})
            assert given == {(403, "LEX_ERR_WEB_012")}
        for headers in OWN:
            assert await answers(client, UNSAFE, {**PROXY, **headers}) == {(200, None)}
        # the proxy calls the host by a name of its own, and says what the browser called it
        public = {"Origin": "https://shop.example", "X-Forwarded-Host": "shop.example"}
        assert await answers(client, UNSAFE, {**PROXY, **public}) == {(200, None)}


async def test_who_sends_a_key_may_come_from_anywhere(serve, router):
    config = WebConfig(port=0, api_keys={"ada": SecretStr(KEY)})
    async with serve(router, config=config) as (client, _):
        for headers in FOREIGN:
            assert await answers(client, UNSAFE, {"X-API-Key": KEY, **headers}) == {(200, None)}
            given = await answers(client, UNSAFE, headers)
            assert given == {(401, "LEX_ERR_WEB_005")}


async def test_a_host_name_that_a_client_forwards_itself_counts_for_nothing(serve, router):
    headers = {"Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"}
    async with serve(router) as (client, _):
        assert await answers(client, UNSAFE, headers) == {(403, "LEX_ERR_WEB_012")}
