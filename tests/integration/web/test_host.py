"""The host on a real port: routes, scopes, problems, probes, limits, keys."""

import hashlib
import json
import logging
from typing import Annotated

import anyio
import httpx
import pytest
from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from tests.failures import WAYS_TO_FAIL, WAYS_TO_RAISE_NOW, never_return

from lexigram.app import Application
from lexigram.config import LexigramConfig, SecretStr
from lexigram.contracts.core.errors import DomainError, InfrastructureError, NotFoundError
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.di import Provider
from lexigram.observability import ObservabilityConfig, ObservabilityModule
from lexigram.testing.fakes import FakeMetrics, FakeTracer
from lexigram.testing.waiting import wait_until
from lexigram.web import (
    Caller,
    Inject,
    WebBindError,
    WebConfig,
    WebError,
    WebHost,
    WebInjectionError,
    WebModule,
    WebRouteError,
    current_caller,
)
from lexigram.web.host import listen

pytestmark = pytest.mark.anyio

KEY = "a-key-that-is-long-enough"


class Line(BaseModel):
    price: float


class Order(BaseModel):
    lines: list[Line]
    password: str = ""


class Unknown:
    pass


def problem(response, status):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["request_id"] == response.headers["x-request-id"]
    return body


# Injection and scopes.


async def test_scoped_services_are_one_for_the_whole_request(serve, session_type, ledger_type):
    router = APIRouter()

    async def dependency(session: Annotated[session_type, Inject()]):
        return session

    def plain_dependency(session: Annotated[session_type, Inject()]):
        return session

    @router.get("/same")
    async def same(
        session: Annotated[session_type, Inject()],
        other: Annotated[object, Depends(dependency)],
        third: Annotated[object, Depends(plain_dependency)],
        ledger: Annotated[ledger_type, Inject()],
    ) -> dict:
        return {"same": session is other is third, "open": ledger.open}

    @router.get("/plain")
    def plain(session: session_type = Inject(), ledger: ledger_type = Inject()) -> int:  # noqa: B008
        return ledger.open

    async with serve(router) as (client, app):
        ledger = app.container.get(ledger_type)
        assert (await client.get("/same")).json() == {"same": True, "open": 1}
        assert (await client.get("/same")).json() == {"same": True, "open": 1}
        assert (await client.get("/plain")).json() == 1
        await wait_until(lambda: ledger.open == 0)
        assert len(set(map(id, ledger.opened))) == 3
        assert [session.error for session in ledger.closed] == [None, None, None]


async def test_optional_named_and_collected_services_are_given(serve):
    class Mailer:
        def __init__(self, name):
            self.name = name

    class Mailers(Provider):
        async def register(self, container):
            container.singleton(Mailer, Mailer("a"), name="first")
            container.singleton(Mailer, Mailer("b"), name="second")

    router = APIRouter()

    @router.get("/")
    async def endpoint(
        second: Annotated[Mailer, Inject("second")],
        missing: Annotated[Unknown | None, Inject()],
        all_of_them: Annotated[list[Mailer], Inject()],
    ) -> list:
        return [second.name, missing, [mailer.name for mailer in all_of_them]]

    async with serve(router, providers=[Mailers]) as (client, _):
        assert (await client.get("/")).json() == ["b", None, ["a", "b"]]


async def test_a_service_nobody_provides_is_told_when_the_host_starts():
    router = APIRouter(prefix="/orders")

    @router.get("/{number}")
    async def endpoint(number: int, unknown: Annotated[Unknown, Inject()]) -> None: ...

    async with Application(
        "shop", LexigramConfig(), modules=[WebModule.stub(routers=[router])]
    ) as app:
        with pytest.raises(
            WebInjectionError, match="/orders/{number} cannot be given what it asks for"
        ):
            async with app.container.get(WebHost).serving():
                pass


async def test_resources_of_a_request_see_what_its_endpoint_raised(
    serve, session_type, ledger_type
):
    router = APIRouter()

    @router.get("/{kind}")
    async def endpoint(kind: str, session: Annotated[session_type, Inject()]) -> None:
        raise {"domain": DomainError("no"), "http": HTTPException(418), "any": KeyError("x")}[kind]

    async with serve(router) as (client, app):
        for kind in ("domain", "http", "any"):
            await client.get(f"/{kind}")
        ledger = app.container.get(ledger_type)
        await wait_until(lambda: len(ledger.closed) == 3)
        seen = [type(session.error) for session in ledger.closed]
        assert seen == [DomainError, HTTPException, KeyError]


async def test_a_streamed_response_keeps_its_scope_until_the_end(serve, session_type, ledger_type):
    router = APIRouter()
    go_on = anyio.Event()

    @router.get("/stream")
    async def stream(
        session: Annotated[session_type, Inject()], ledger: Annotated[ledger_type, Inject()]
    ) -> StreamingResponse:
        async def body():
            yield f"{ledger.open}\n"
            await go_on.wait()
            yield f"{ledger.open}\n"

        return StreamingResponse(body())

    async with serve(router) as (client, app):
        ledger = app.container.get(ledger_type)
        async with client.stream("GET", "/stream") as response:
            lines = response.aiter_lines()
            assert await anext(lines) == "1"
            assert ledger.open == 1
            go_on.set()
            assert await anext(lines) == "1"
        await wait_until(lambda: ledger.open == 0)


async def test_a_stream_that_fails_half_way_is_cut_and_leaves_no_scope(
    serve, session_type, ledger_type, caplog
):
    router = APIRouter()

    @router.get("/stream")
    async def stream(session: Annotated[session_type, Inject()]) -> StreamingResponse:
        async def body():
            yield "begun"
            raise RuntimeError("half-way")

        return StreamingResponse(body())

    async with serve(router) as (client, app):
        with caplog.at_level(logging.ERROR), pytest.raises(httpx.RemoteProtocolError):
            await client.get("/stream")
        ledger = app.container.get(ledger_type)
        await wait_until(lambda: ledger.open == 0 and len(ledger.closed) == 1)
        assert isinstance(ledger.closed[0].error, RuntimeError)
    told = [record for record in caplog.records if record.exc_info]
    assert [record.message.partition(" failed")[0] for record in told] == ["GET /stream"]


async def test_however_a_request_ends_its_scope_is_closed(serve, session_type, ledger_type):
    router = APIRouter()

    @router.post("/orders")
    async def orders(order: Order, session: Annotated[session_type, Inject()]) -> None: ...

    @router.get("/boom")
    async def boom(session: Annotated[session_type, Inject()]) -> None:
        raise RuntimeError("boom")

    @router.get("/slow")
    async def slow(session: Annotated[session_type, Inject()]) -> None:
        await anyio.sleep_forever()

    async with serve(router) as (client, app):
        scopes = count_scopes(app.container)
        host = app.container.get(WebHost)
        ledger = app.container.get(ledger_type)
        statuses = [
            (await client.post("/orders", json={"lines": []})).status_code,
            (await client.post("/orders", json={"lines": 3})).status_code,
            (await client.post("/orders", content=b"{")).status_code,
            (await client.get("/boom")).status_code,
            (await client.get("/nowhere")).status_code,
            (await client.get("/orders")).status_code,
        ]
        assert statuses == [200, 422, 422, 500, 404, 405]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.get, "/slow")
            await wait_until(lambda: ledger.open == 1)
            tasks.cancel_scope.cancel()
        await wait_until(lambda: host.in_flight == 0)
        assert scopes["opened"] == 7
        assert (len(ledger.opened), ledger.open) == (5, 0)


def count_scopes(container):
    counted = {"opened": 0}

    class Counting(container.scope):
        async def __aenter__(self):
            counted["opened"] += 1
            return await super().__aenter__()

    container.scope = Counting
    return counted


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_client_that_goes_away_leaves_no_scope_open(
    serve, session_type, ledger_type, streaming
):
    router = APIRouter()
    metrics = FakeMetrics()

    @router.get("/slow")
    async def slow(session: Annotated[session_type, Inject()]):
        async def body():
            yield "begun"
            await anyio.sleep_forever()

        if not streaming:
            await anyio.sleep_forever()
        return StreamingResponse(body())

    observing = ObservabilityModule.stub(metrics=metrics)
    async with serve(router, modules=[observing]) as (client, app):
        ledger = app.container.get(ledger_type)
        host = app.container.get(WebHost)
        for count in range(1, 4):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.get, "/slow")
                await wait_until(lambda count=count: len(ledger.opened) == count)
                tasks.cancel_scope.cancel()
            await wait_until(lambda: ledger.open == 0)
        assert all(session.error is not None for session in ledger.closed)
        await wait_until(lambda: host.in_flight == 0)
        assert metrics.counted("web_requests", status="499") == 3


async def test_an_endpoint_may_finish_for_a_client_that_has_gone(serve, session_type, ledger_type):
    router = APIRouter()
    go_on, finished = anyio.Event(), anyio.Event()

    @router.post("/work")
    async def work(session: Annotated[session_type, Inject()]) -> None:
        await go_on.wait()
        finished.set()

    config = WebConfig(port=0, cancel_on_disconnect=False)
    async with serve(router, config=config) as (client, app):
        ledger = app.container.get(ledger_type)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.post, "/work")
            await wait_until(lambda: ledger.open == 1)
            tasks.cancel_scope.cancel()
        go_on.set()
        await wait_until(lambda: ledger.open == 0)
        assert finished.is_set()
        assert ledger.closed[0].error is None


async def test_a_client_that_goes_away_while_sending_leaves_no_scope_open(
    serve, session_type, ledger_type
):
    router = APIRouter()

    @router.post("/orders")
    async def orders(request: Request, session: Annotated[session_type, Inject()]) -> int:
        return len(await request.body())

    async with serve(router) as (client, app):
        ledger, host = app.container.get(ledger_type), app.container.get(WebHost)
        url = client.base_url
        stream = await anyio.connect_tcp(url.host, url.port)
        await stream.send(
            b"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"
        )
        await wait_until(lambda: ledger.open == 1)
        await stream.aclose()
        await wait_until(lambda: ledger.open == 0 and host.in_flight == 0)


# Problems.


async def test_errors_of_the_framework_are_told_by_their_code(serve):
    router = APIRouter()
    errors = {
        "domain": DomainError("the order is closed", details={"order": 7}),
        "missing": NotFoundError("there is no order 7"),
        "outside": InfrastructureError("postgres at 10.0.0.3 said no"),
    }

    @router.get("/{kind}")
    async def endpoint(kind: str) -> None:
        raise errors[kind]

    async with serve(router) as (client, _):
        body = problem(await client.get("/domain"), 400)
        assert body["code"] == "LEX_ERR_DOM_001"
        assert body["type"] == "urn:lexigram:problem:LEX_ERR_DOM_001"
        assert body["detail"] == "the order is closed"
        assert body["details"] == {"order": 7}
        assert body["instance"] == "/domain"
        body = problem(await client.get("/missing"), 404)
        assert (body["code"], body["detail"]) == ("LEX_ERR_DOM_002", "there is no order 7")
        response = await client.get("/outside")
        body = problem(response, 503)
        assert body["code"] == "LEX_ERR_INFRA_001"
        assert "10.0.0.3" not in response.text


async def test_an_unexpected_error_tells_an_id_and_nothing_from_inside(serve, caplog):
    router = APIRouter()

    @router.get("/boom")
    async def boom() -> None:
        raise RuntimeError("secret of the inside")

    async with serve(router) as (client, _):
        with caplog.at_level(logging.ERROR):
            response = await client.get("/boom")
        body = problem(response, 500)
        assert "secret" not in response.text
        assert body["error_id"] in caplog.text
        assert "secret of the inside" in caplog.text
        assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1
        assert (await client.get("/health/live")).status_code == 200


async def test_a_bad_body_is_told_by_the_path_of_each_fault_and_not_shown(serve):
    router = APIRouter()

    @router.post("/orders")
    async def orders(order: Order, page: int = 1) -> None: ...

    async with serve(router) as (client, _):
        wrong = {"lines": [{"price": 1}, {"price": "much"}], "password": ["hunter2"]}
        response = await client.post("/orders?page=x", json=wrong)
        body = problem(response, 422)
        assert body["code"] == "LEX_ERR_WEB_008"
        paths = sorted(item["path"] for item in body["errors"])
        assert paths == ["body.lines.1.price", "body.password", "query.page"]
        assert "hunter2" not in response.text
        assert "much" not in response.text
        headers = {"content-type": "application/json"}
        body = problem(await client.post("/orders", content=b"{no", headers=headers), 422)
        assert body["errors"][0]["type"] == "json_invalid"


async def test_unknown_routes_and_wrong_methods_are_problems(serve):
    async with serve() as (client, _):
        body = problem(await client.get("/nowhere"), 404)
        assert (body["code"], body["title"]) == ("HTTP_404", "Not Found")
        response = await client.post("/health/live")
        problem(response, 405)
        assert response.headers["allow"] == "GET"


async def test_an_http_exception_keeps_status_detail_and_headers(serve):
    router = APIRouter()

    @router.get("/text")
    async def text() -> None:
        raise HTTPException(402, "pay first", headers={"X-Price": "3"})

    @router.get("/data")
    async def data() -> None:
        raise HTTPException(409, {"owner": "ada"})

    async with serve(router) as (client, _):
        response = await client.get("/text")
        assert problem(response, 402)["detail"] == "pay first"
        assert response.headers["x-price"] == "3"
        assert problem(await client.get("/data"), 409)["details"] == {"detail": {"owner": "ada"}}


async def test_statuses_can_be_given_for_exceptions_of_ones_own(serve):
    class Closed(DomainError):
        code = "SHOP_001"

    router = APIRouter()

    @router.get("/closed")
    async def closed() -> None:
        raise Closed("it is Sunday")

    @router.get("/forbidden")
    async def forbidden() -> None:
        raise PermissionError("/etc/shadow")

    statuses = {Closed: 423, PermissionError: 403}
    async with serve(router, statuses=statuses) as (client, _):
        body = problem(await client.get("/closed"), 423)
        assert (body["code"], body["detail"]) == ("SHOP_001", "it is Sunday")
        response = await client.get("/forbidden")
        problem(response, 403)
        assert "shadow" not in response.text


async def test_openapi_shows_the_problem_and_the_keys(serve):
    router = APIRouter()

    @router.post("/orders")
    async def orders(order: Order) -> None: ...

    config = WebConfig(port=0, api_keys={"ada": SecretStr(KEY)})
    async with serve(router, config=config) as (client, _):
        schema = (await client.get("/openapi.json", headers={"X-API-Key": KEY})).json()
    responses = schema["paths"]["/orders"]["post"]["responses"]
    assert set(responses) == {"200", "default"}
    content = responses["default"]["content"]
    assert content["application/problem+json"]["schema"]["$ref"] == "#/components/schemas/Problem"
    assert {"Problem", "FieldProblem", "Order"} <= set(schema["components"]["schemas"])
    assert "$defs" not in json.dumps(schema)
    assert set(schema["components"]["securitySchemes"]) == {"key", "bearer"}
    assert schema["info"]["title"] == "shop"


# Probes.


async def test_probes_tell_the_health_of_the_application(serve):
    class Sick(Provider):
        name = "sick"
        status = HealthStatus.HEALTHY

        async def health_check(self, timeout=5.0):
            return HealthCheckResult(component="sick", status=self.status, error="why it is")

    sick = Sick()
    async with serve(providers=[sick]) as (client, _):
        for probe in ("live", "ready", "startup"):
            response = await client.get(f"/health/{probe}")
            assert response.status_code == 200
            assert response.json()["status"] == "healthy"
            assert response.headers["cache-control"] == "no-store"
        sick.status = HealthStatus.DEGRADED
        assert (await client.get("/health/ready")).status_code == 200
        sick.status = HealthStatus.UNHEALTHY
        response = await client.get("/health/ready")
        assert response.status_code == 503
        assert "why it is" in response.text
        assert (await client.get("/health/live")).status_code == 200


async def test_metrics_are_given_as_text_or_explained(serve):
    async with serve() as (client, _):
        assert "observability.metrics" in problem(await client.get("/metrics"), 404)["detail"]
    router = APIRouter()

    @router.get("/orders/{number}")
    async def order(number: int) -> None: ...

    observing = ObservabilityModule.configure(ObservabilityConfig(metrics="prometheus"))
    async with serve(router, modules=[observing]) as (client, _):
        for number in (1, 2, "x"):
            await client.get(f"/orders/{number}")
        await client.get("/nowhere")
        response = await client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = response.text
    assert 'route="/orders/{number}"' in text
    assert 'status="422"' in text
    assert 'route="(none)"' in text
    assert "/orders/1" not in text


# Ids and traces.


async def test_every_response_has_a_request_id_and_a_good_one_is_kept(serve):
    async with serve() as (client, _):
        kept = await client.get("/health/live", headers={"X-Request-ID": "from-outside.1"})
        assert kept.headers["x-request-id"] == "from-outside.1"
        made = [(await client.get("/health/live")).headers["x-request-id"] for _ in range(2)]
        assert made[0] != made[1]
        bad = await client.get("/nowhere", headers={"X-Request-ID": "a b\tc" * 50})
        assert len(problem(bad, 404)["request_id"]) == 32


async def test_a_trace_from_outside_goes_on_and_is_told_outside(serve):
    tracer = FakeTracer()
    trace = "0af7651916cd43dd8448eb211c80319c"
    observing = ObservabilityModule.stub(tracer=tracer)
    async with serve(modules=[observing]) as (client, _):
        parent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        response = await client.get("/health/startup", headers=parent)
        assert response.headers["traceparent"].split("-")[1] == trace
        assert response.headers["traceparent"].split("-")[2] != "b7ad6b7169203331"
    span = next(span for span in tracer.spans if span.name == "HTTP GET")
    assert span.attributes["http.route"] == "/health/startup"
    assert span.attributes["http.response.status_code"] == 200


# Limits.


async def test_a_body_over_the_limit_is_refused_announced_or_not(serve, session_type, ledger_type):
    router = APIRouter()

    @router.post("/size")
    async def size(request: Request, session: Annotated[session_type, Inject()]) -> int:
        return len(await request.body())

    @router.post("/model")
    async def model(order: Order) -> None: ...

    async def pieces(count):
        for _ in range(count):
            yield b"x" * 100

    async with serve(router, config=WebConfig(port=0, max_body_bytes=1000)) as (client, app):
        assert (await client.post("/size", content=b"x" * 1000)).json() == 1000
        assert (await client.post("/size", content=pieces(10))).json() == 1000
        for content in (b"x" * 1001, pieces(11)):
            body = problem(await client.post("/size", content=content), 413)
            assert body["code"] == "LEX_ERR_WEB_006"
        headers = {"content-type": "application/json"}
        problem(await client.post("/model", content=pieces(11), headers=headers), 413)
        ledger = app.container.get(ledger_type)
        await wait_until(lambda: ledger.open == 0)


# Who may call.


async def test_a_host_with_keys_answers_only_who_has_one(serve):
    router = APIRouter()

    @router.get("/me")
    async def me(caller: Annotated[Caller | None, Depends(current_caller)]) -> str | None:
        return caller and f"{caller.name} via {caller.via}"

    hashed = hashlib.sha256(b"the-other-key-0123456789").hexdigest()
    keys = {"ada": SecretStr(KEY), "grace": SecretStr(f"sha256:{hashed}")}
    async with serve(router, config=WebConfig(port=0, api_keys=keys)) as (client, _):
        for headers, name in (
            ({"X-API-Key": KEY}, "ada"),
            ({"Authorization": f"Bearer {KEY}"}, "ada"),
            ({"X-API-Key": "the-other-key-0123456789"}, "grace"),
        ):
            assert (await client.get("/me", headers=headers)).json() == f"{name} via key"
        for headers in (
            {},
            {"X-API-Key": ""},
            {"X-API-Key": KEY[:-1]},
            {"X-API-Key": f"sha256:{hashed}"},
            {"Authorization": f"Basic {KEY}"},
            {"X-Forwarded-User": "ada"},
        ):
            for path in ("/me", "/nowhere", "/metrics", "/openapi.json"):
                response = await client.get(path, headers=headers)
                assert problem(response, 401)["code"] == "LEX_ERR_WEB_005"
                assert response.headers["www-authenticate"] == "Bearer"
                assert KEY not in response.text


async def test_probes_need_no_key_and_show_no_details_without(serve):
    config = WebConfig(port=0, api_keys={"ada": SecretStr(KEY)})
    async with serve(config=config) as (client, _):
        assert "in_flight" not in (await client.get("/health/ready")).text
        known = await client.get("/health/ready", headers={"X-API-Key": KEY})
        assert "in_flight" in known.text


async def test_a_trusted_proxy_names_user_client_and_scheme(serve):
    router = APIRouter()

    @router.get("/me")
    async def me(request: Request, caller: Annotated[Caller, Depends(current_caller)]) -> list:
        assert request.client is not None
        return [caller.name, caller.via, request.client.host, request.url.scheme]

    headers = {
        "X-Forwarded-User": "ada",
        "X-Forwarded-For": "203.0.113.7",
        "X-Forwarded-Proto": "https",
    }
    config = WebConfig(port=0, trusted_proxies=("127.0.0.0/8",))
    async with serve(router, config=config) as (client, _):
        assert (await client.get("/me", headers=headers)).json() == [
            *("ada", "proxy", "203.0.113.7", "https")
        ]
        problem(await client.get("/me"), 401)
    config = WebConfig(port=0, trusted_proxies=("192.0.2.1",))
    async with serve(router, config=config) as (client, _):
        problem(await client.get("/me", headers=headers), 401)


async def test_headers_of_a_proxy_count_for_nothing_without_trust(serve):
    router = APIRouter()

    @router.get("/me")
    async def me(request: Request) -> list:
        assert request.client is not None
        return [request.client.host, request.url.scheme]

    headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
    async with serve(router) as (client, _):
        assert (await client.get("/me", headers=headers)).json() == ["127.0.0.1", "http"]


async def test_a_host_without_keys_is_called_as_localhost_only(serve):
    async with serve() as (client, _):
        for host in ("localhost", "127.0.0.1:80", "[::1]:80", "app.localhost"):
            assert (await client.get("/health/live", headers={"Host": host})).status_code == 200
        for host in ("attacker.example", "10.0.0.1", "localhost.attacker.example"):
            response = await client.get("/health/live", headers={"Host": host})
            assert problem(response, 403)["code"] == "LEX_ERR_WEB_007"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_an_address_others_can_reach_is_refused_without_keys_before_binding(host):
    config = WebConfig(host=host, port=0)
    async with Application("shop", LexigramConfig(), modules=[WebModule.stub(config)]) as app:
        with pytest.raises(WebBindError, match="can be reached from other machines") as caught:
            async with app.container.get(WebHost).serving():
                pass
        assert "web.api_keys" in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [{"port": 99999}, {"port": -1}, {"host": ""}, {"host": "a" * 64}, {"host": "a\0b"}],
    ids=str,
)
async def test_a_place_that_is_none_is_refused_by_our_error(serve, place):
    async with serve() as (_, app):
        with pytest.raises(WebBindError):
            async with app.container.get(WebHost).serving(**place):
                pass


async def test_an_address_others_can_reach_is_served_with_keys(serve):
    config = WebConfig(host="0.0.0.0", port=0, api_keys={"ada": SecretStr(KEY)})
    async with serve(config=config) as (client, _):
        url = f"http://127.0.0.1:{client.base_url.port}/openapi.json"
        assert (await client.get(url)).status_code == 401
        assert (await client.get(url, headers={"X-API-Key": KEY})).status_code == 200


async def test_responses_are_sent_without_delay(serve):
    import socket

    from lexigram.web.auth import Guard
    from lexigram.web.server import bind

    config = WebConfig(port=0)
    with await bind(config, Guard(config)) as bound:
        assert bound.proto == socket.IPPROTO_TCP  # what asyncio looks at before TCP_NODELAY


async def test_of_two_that_listen_at_once_the_second_is_refused_before_any_serves():
    config = WebConfig(port=0)
    with await listen(config) as first:
        with pytest.raises(WebBindError, match="cannot listen on"):
            await listen(config, port=first.getsockname()[1])


async def test_connections_made_before_the_application_runs_are_answered_when_it_does():
    config = WebConfig(port=0)
    with await listen(config) as bound:
        host, port = bound.getsockname()
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            async with anyio.create_task_group() as tasks:
                answers = []

                async def ask():
                    answers.append((await client.get("/health/live")).status_code)

                tasks.start_soon(ask)
                app = Application("shop", LexigramConfig(), modules=[WebModule.stub(config)])
                async with app, app.container.get(WebHost).serving(bound=bound) as address:
                    assert address.port == port
                    await wait_until(lambda: answers == [200])


async def test_a_port_that_is_taken_is_told(serve):
    async with serve() as (client, app):
        with pytest.raises(
            WebBindError, match=f"cannot listen on 127.0.0.1:{client.base_url.port}"
        ):
            async with app.container.get(WebHost).serving(port=client.base_url.port):
                pass


# Contributors.


class Contributor:
    def __init__(self, name, *routers):
        self.contributor_id = name
        self.routers = routers

    def get_routers(self, container):
        if isinstance(self.routers[0], Exception):
            raise self.routers[0]
        return self.routers


def router_at(path, prefix=""):
    router = APIRouter(prefix=prefix)

    @router.get(path)
    async def endpoint() -> str:
        return path

    return router


async def test_a_contributor_that_is_wrong_is_left_out_and_reported(serve):
    contributors = [
        Contributor("good", router_at("/good")),
        Contributor("raises", RuntimeError("broken inside")),
        Contributor("good", router_at("/second")),
        Contributor("taken", router_at("/fine"), router_at("/{name}", prefix="/orders")),
        Contributor("no-router", "/x"),
        Contributor("wanting", wanting()),
        Contributor("off", router_at("/off")),
    ]
    mine = router_at("/orders/{number}")
    config = WebConfig(port=0, disabled_contributors=("off",))
    async with serve(mine, config=config, contributors=contributors) as (client, app):
        assert (await client.get("/good")).json() == "/good"
        assert (await client.get("/orders/7")).json() == "/orders/{number}"
        for path in ("/second", "/fine", "/x", "/wanting", "/off"):
            assert (await client.get(path)).status_code == 404
        left_out = {item.contributor: item.reason for item in app.container.get(WebHost).left_out}
        assert set(left_out) == {"raises", "good", "taken", "no-router", "wanting"}
        assert "broken inside" in left_out["raises"]
        assert "two contributors are called good" in left_out["good"]
        assert "GET /orders/{} is wanted by taken and taken by the application" in left_out["taken"]
        health = await app.health_check()
        assert health.status is HealthStatus.DEGRADED


def wanting():
    router = APIRouter()

    @router.get("/wanting")
    async def endpoint(unknown: Annotated[Unknown, Inject()]) -> None: ...

    return router


async def test_routers_of_the_application_that_clash_stop_the_start():
    web = WebModule.stub(routers=[router_at("/health/live")])
    async with Application("shop", LexigramConfig(), modules=[web]) as app:
        with pytest.raises(WebRouteError, match="taken by lexigram"):
            async with app.container.get(WebHost).serving():
                pass


async def test_installed_contributors_are_found_by_entry_point(monkeypatch):
    from importlib.metadata import EntryPoint

    from lexigram.web import routes

    here = "tests_of_web_contributors"
    made = type("Made", (), {})()
    made.Good = lambda: Contributor("installed", router_at("/installed"))
    made.Bad = lambda: object()
    monkeypatch.setitem(__import__("sys").modules, here, made)
    points = [
        EntryPoint(name=name, value=f"{here}:{name}", group=routes.CONTRIBUTORS_GROUP)
        for name in ("Good", "Bad", "Missing")
    ]
    monkeypatch.setattr(routes, "entry_points", lambda group: points)
    web = WebModule.configure(WebConfig(port=0))
    async with Application("shop", LexigramConfig(), modules=[web]) as app:
        host = app.container.get(WebHost)
        async with host.serving() as address, httpx.AsyncClient(base_url=address.url) as client:
            assert (await client.get("/installed")).json() == "/installed"
        assert [item.contributor for item in host.left_out] == ["Bad", "Missing"]


# Start and stop.


async def test_routes_are_asked_for_only_when_the_application_runs():
    app = Application("shop", LexigramConfig(), modules=[WebModule.stub()])
    async with app:
        host = app.container.get(WebHost)
    with pytest.raises(WebError, match="is stopped"):
        host.asgi


async def test_readiness_turns_503_before_the_port_is_closed_and_requests_end(
    serve, session_type, ledger_type
):
    router = APIRouter()
    go_on = anyio.Event()

    @router.get("/slow")
    async def slow(session: Annotated[session_type, Inject()]) -> str:
        await go_on.wait()
        return "done"

    answers = []
    leave = anyio.Event()
    web = WebModule.stub(WebConfig(port=0, drain_delay=0.5), routers=[router])
    from_conftest = __import__("inspect").getmodule(serve).SessionProvider
    async with Application(
        "shop", LexigramConfig(), modules=[web], providers=[from_conftest]
    ) as app:
        host, ledger = app.container.get(WebHost), app.container.get(ledger_type)
        ready = anyio.Event()
        places = []

        async def live():
            async with host.serving() as address:
                places.append(address)
                ready.set()
                await leave.wait()

        async def ask():
            async with httpx.AsyncClient(base_url=places[0].url, timeout=30) as client:
                answers.append((await client.get("/slow")).json())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live)
            await ready.wait()
            tasks.start_soon(ask)
            await wait_until(lambda: ledger.open == 1)
            leave.set()
            async with httpx.AsyncClient(base_url=places[0].url) as client:
                await wait_until(lambda: host.is_draining)
                response = await client.get("/health/ready")
                assert response.status_code == 503
                assert "draining" in response.text
                assert (await client.get("/health/live")).status_code == 200
            await wait_until(lambda: is_closed(places[0]))
            go_on.set()
        assert answers == ["done"]
        assert ledger.open == 0


async def is_closed(address):
    try:
        stream = await anyio.connect_tcp(address.host, address.port)
    except OSError:
        return True
    await stream.aclose()
    return False


async def test_requests_that_do_not_end_are_cancelled_after_the_deadline(
    serve, session_type, ledger_type
):
    router = APIRouter()

    @router.get("/stuck")
    async def stuck(session: Annotated[session_type, Inject()]) -> None:
        await anyio.sleep_forever()

    answers = []

    async def ask(client):
        answers.append(await client.get("/stuck", timeout=30))

    config = WebConfig(port=0, drain_timeout=1)
    async with anyio.create_task_group() as tasks:
        async with serve(router, config=config) as (_, app):
            ledger = app.container.get(ledger_type)
            client = httpx.AsyncClient(base_url=app.container.get(WebHost).address.url)
            tasks.start_soon(ask, client)
            await wait_until(lambda: ledger.open == 1)
        assert ledger.open == 0
        assert len(ledger.closed) == 1
    await client.aclose()
    assert problem(answers[0], 503)["code"] == "LEX_ERR_WEB_009"


async def test_a_host_that_is_cancelled_lets_requests_end_all_the_same(serve):
    router = APIRouter()
    begun, go_on, answers = anyio.Event(), anyio.Event(), []

    @router.get("/slow")
    async def slow() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async def ask(url):
        async with httpx.AsyncClient(trust_env=False) as client:
            answers.append((await client.get(f"{url}/slow", timeout=30)).json())

    async with anyio.create_task_group() as outside:
        with anyio.CancelScope() as told:
            async with serve(router) as (client, app):
                host = app.container.get(WebHost)
                outside.start_soon(ask, str(client.base_url).rstrip("/"))
                await begun.wait()
                outside.start_soon(set_when_draining, host, go_on)
                told.cancel()
                await anyio.sleep_forever()
    assert answers == ["done"]


async def set_when_draining(host, event):
    await wait_until(lambda: host.is_draining)
    event.set()


async def test_routers_bring_their_own_lifespan():
    from contextlib import asynccontextmanager

    seen = []

    @asynccontextmanager
    async def lifespan(_app):
        seen.append("up")
        yield
        seen.append("down")

    web = WebModule.stub(routers=[APIRouter(lifespan=lifespan)])
    async with Application("shop", LexigramConfig(), modules=[web]) as app:
        async with app.container.get(WebHost).serving():
            assert seen == ["up"]
        assert seen == ["up", "down"]


async def test_what_the_block_raises_comes_out_as_it_is(serve):
    with pytest.raises(ZeroDivisionError):
        async with serve():
            raise ZeroDivisionError


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_route_that_fails_in_any_way_answers_with_a_problem_and_the_host_goes_on(
    serve, fail, caplog
):
    router = APIRouter()

    @router.get("/broken")
    async def broken() -> None:
        await fail()

    async with serve(router, config=WebConfig(port=0, handler_timeout=0.2)) as (client, _):
        status = 504 if fail is never_return else 500
        reported = problem(await client.get("/broken"), status)
        assert reported["code"] in ("LEX_ERR_WEB_001", "LEX_ERR_CORE_002", "LEX_ERR_CORE_003")
        assert reported["error_id"] in caplog.text
        assert (await client.get("/health/live")).status_code == 200


@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_a_route_in_a_thread_that_fails_in_any_way_answers_500_and_the_host_goes_on(
    serve, fail
):
    router = APIRouter()

    @router.get("/broken")
    def broken() -> None:
        fail()

    async with serve(router) as (client, _):
        assert problem(await client.get("/broken"), 500)["error_id"]
        assert (await client.get("/health/live")).status_code == 200


async def test_a_response_that_has_begun_may_take_longer_than_the_time_limit(serve):
    router = APIRouter()

    async def numbers():
        for number in range(3):
            yield f"{number}\n"
            await anyio.sleep(0.15)

    @router.get("/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(numbers())

    async with serve(router, config=WebConfig(port=0, handler_timeout=0.2)) as (client, _):
        assert (await client.get("/stream")).text == "0\n1\n2\n"


@pytest.mark.parametrize("place", ["contributor_id", "get_routers"])
@pytest.mark.parametrize("fail", WAYS_TO_RAISE_NOW)
async def test_a_contributor_of_routes_that_fails_in_any_way_is_left_out(serve, fail, place):
    router = APIRouter()

    @router.get("/fine")
    async def fine() -> int:
        return 1

    class Broken:
        @property
        def contributor_id(self):
            return fail() if place == "contributor_id" else "broken"

        def get_routers(self, container):
            return fail()

    class Fine:
        contributor_id = "fine"

        def get_routers(self, container):
            return [router]

    async with serve(contributors=[Broken(), Fine()]) as (client, app):
        assert (await client.get("/fine")).json() == 1
        [left_out] = app.container.get(WebHost).left_out
        assert left_out.reason
