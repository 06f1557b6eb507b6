"""OpenAIEmbeddings against a real server on loopback that misbehaves in every way we know of."""

import logging
import pickle
import socket
from datetime import timedelta
from email.utils import format_datetime

import anyio
import anyio.lowlevel
import httpx
import pytest
from tests.integration.ai.embeddings.endpoint import (
    DIMENSION,
    fails,
    good,
    hangs,
    one_missing,
    serving,
    shuffled,
    vector_of,
)

from lexigram import clock
from lexigram.ai.workers.batch_embedding import BatchEmbeddingWorker
from lexigram.ai.workers.embeddings import (
    EmbeddingConfig,
    EmbeddingEndpointError,
    EmbeddingMismatchError,
    EmbeddingModelError,
    EmbeddingsUnavailableError,
    OpenAIEmbeddings,
    close_embeddings,
    make_embeddings,
)
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.config import SecretStr
from lexigram.tasks import InMemoryTaskQueue, JobRetry, JobStatus
from lexigram.testing.waiting import wait_until

pytestmark = pytest.mark.anyio
KEY = "sk-very-secret-4711"
TEXTS = [f"text {n}" for n in range(10)]


@pytest.fixture
async def endpoint():
    async with serving() as made:
        yield made


class Waits:
    """Instead of sleeping: remembers how long and until when, and lets the clock pass."""

    def __init__(self, fake_clock):
        self.clock, self.seconds, self.deadlines = fake_clock, [], []

    async def __call__(self, seconds):
        self.seconds.append(seconds)
        self.deadlines.append(anyio.current_effective_deadline())
        self.clock.advance(seconds + 1e-6)  # a sleep is never shorter, not even by rounding
        await anyio.lowlevel.checkpoint()


@pytest.fixture
def waits(fake_clock):
    with clock.use(fake_clock):
        yield Waits(fake_clock)


@pytest.fixture
async def embeddings(endpoint, waits):
    made = []

    def make(**settings):
        given = {"model": "m", "dimension": DIMENSION, "url": endpoint.url, **settings}
        provider = OpenAIEmbeddings(
            EmbeddingConfig(provider="openai", api_key=SecretStr(KEY), **given), sleep=waits
        )
        made.append(provider)
        return provider

    yield make
    for provider in made:
        await provider.aclose()


async def test_the_request_has_model_texts_and_key(endpoint, embeddings):
    assert await embeddings().embed_texts(TEXTS[:2]) == [vector_of(text) for text in TEXTS[:2]]
    [request] = endpoint.requests
    assert request["line"] == "POST /v1/embeddings HTTP/1.1"
    assert request["headers"]["authorization"] == f"Bearer {KEY}"
    assert request["model"] == "m"
    assert request["input"] == TEXTS[:2]
    assert "dimensions" not in request


async def test_without_a_key_no_header_is_sent(endpoint, embeddings):
    config = EmbeddingConfig(provider="openai", model="m", dimension=DIMENSION, url=endpoint.url)
    provider = make_embeddings(config)
    await provider.embed_texts(["a"])
    assert "authorization" not in endpoint.requests[0]["headers"]
    await close_embeddings(provider)


async def test_batches_go_by_number_and_by_tokens(endpoint, embeddings):
    await embeddings(batch_size=4).embed_texts(TEXTS)
    assert sorted(len(item["input"]) for item in endpoint.requests) == [2, 4, 4]
    endpoint.requests.clear()
    long = ["x" * 400] * 6  # 101 tokens each, by the estimate
    await embeddings(batch_size=100, max_batch_tokens=210).embed_texts(long)
    assert [len(item["input"]) for item in endpoint.requests] == [2, 2, 2]


async def test_no_more_requests_at_a_time_than_connections(endpoint, embeddings):
    endpoint.hold = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(embeddings(batch_size=1, connections=3).embed_texts, TEXTS)
        await wait_until(lambda: endpoint.running == 3)
        endpoint.hold.set()
    assert endpoint.most_running == 3
    assert len(endpoint.requests) == 10


async def test_vectors_are_put_in_order_by_their_index(endpoint, embeddings):
    endpoint.script = [shuffled]
    assert await embeddings().embed_texts(TEXTS) == [vector_of(text) for text in TEXTS]


async def test_429_then_500_are_tried_again_then_it_works(endpoint, embeddings, waits):
    endpoint.script = [fails(429, {"Retry-After": "7"}), fails(500)]
    assert await embeddings().embed_texts(TEXTS) == [vector_of(text) for text in TEXTS]
    assert len(endpoint.requests) == 3
    asked, own = waits.seconds
    assert asked == pytest.approx(7)
    assert 0 < own <= 2


async def test_retry_after_is_waited_for_by_the_next_call_too(endpoint, embeddings, waits):
    endpoint.script = [fails(429, {"Retry-After": "30"})]
    provider = embeddings(max_retries=0)
    with pytest.raises(EmbeddingsUnavailableError) as caught:
        await provider.embed_texts(["a"])
    assert caught.value.retry_after == 30
    assert waits.seconds == []
    await provider.embed_texts(["b"])
    assert waits.seconds == pytest.approx([30])


async def test_retry_after_may_be_a_date(endpoint, embeddings, waits):
    then = clock.now() + timedelta(seconds=20)
    endpoint.script = [fails(503, {"Retry-After": format_datetime(then, usegmt=True)})]
    assert len(await embeddings().embed_texts(TEXTS)) == 10
    assert waits.seconds == pytest.approx([20], abs=1)


async def test_a_retry_after_beyond_max_wait_raises_without_waiting(endpoint, embeddings):
    endpoint.script = [fails(429, {"Retry-After": "3600"})]
    with pytest.raises(
        EmbeddingsUnavailableError, match="Retry-After is longer than 60 s"
    ) as caught:
        await embeddings().embed_texts(TEXTS)
    assert caught.value.retry_after == 3600
    assert len(endpoint.requests) == 1


async def test_an_answer_that_leaves_nothing_holds_the_next_request(endpoint, embeddings, waits):
    def last_one(endpoint, request):
        left = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30ms"}
        status, _, body = good(endpoint, request)
        return status, left, body

    endpoint.script = [last_one]
    provider = embeddings()
    await provider.embed_texts(["a"])
    assert waits.seconds == []
    await provider.embed_texts(["b"])
    assert waits.seconds == pytest.approx([60.0])


async def test_our_own_limit_of_requests_is_kept(endpoint, embeddings, waits):
    await embeddings(batch_size=1, connections=1, requests_per_minute=6).embed_texts(TEXTS[:4])
    assert waits.seconds == pytest.approx([10] * 3, abs=1e-3)


async def test_our_own_limit_of_tokens_cuts_batches_and_is_kept(endpoint, embeddings, waits):
    # 11 tokens each, and as many come in a minute
    provider = embeddings(tokens_per_minute=11, connections=1)
    await provider.embed_texts(["x" * 40] * 4)
    assert [len(item["input"]) for item in endpoint.requests] == [1] * 4
    assert waits.seconds == pytest.approx([60] * 3, abs=1e-3)


async def test_waiting_for_our_own_limit_is_not_held_against_a_batch(endpoint, embeddings, waits):
    endpoint.script = [good, fails(500)]
    await embeddings(batch_size=1, connections=1, requests_per_minute=6).embed_texts(["a", "b"])
    first, backoff, again = waits.deadlines
    assert first == float("inf")
    assert max(backoff, again) < float("inf")


async def test_tries_are_limited_and_the_error_says_what_was_last(endpoint, embeddings):
    endpoint.script = [fails(500)] * 3
    with pytest.raises(EmbeddingsUnavailableError, match="all retries are used up: 500 status 500"):
        await embeddings(max_retries=2).embed_texts(TEXTS)
    assert len(endpoint.requests) == 3


async def test_a_hanging_request_is_ended_and_tried_again(endpoint, embeddings):
    endpoint.script = [hangs]
    assert len(await embeddings(timeout=3).embed_texts(TEXTS)) == 10
    assert len(endpoint.requests) == 2


async def test_an_endpoint_that_always_hangs_ends_in_time(endpoint, embeddings):
    endpoint.script = [hangs] * 100
    provider = embeddings(timeout=0.05, total_timeout=0.3, max_retries=90)
    with pytest.raises(EmbeddingsUnavailableError, match="took longer than 0.3 s"):
        with anyio.fail_after(60):
            await provider.embed_texts(TEXTS)


async def test_an_endpoint_that_drips_is_ended_too(embeddings):
    """Bytes keep coming, so no single read is late."""
    stop = anyio.Event()

    async def drip(stream):
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not stop.is_set():
                try:
                    await stream.send(b" ")
                except (anyio.BrokenResourceError, OSError):
                    return
                await anyio.sleep(0.01)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, drip)
        provider = embeddings(url=f"http://127.0.0.1:{port}", timeout=0.2, max_retries=0)
        with pytest.raises(EmbeddingsUnavailableError, match="no response within 0.2 s"):
            await provider.embed_texts(["a"])
        stop.set()
        tasks.cancel_scope.cancel()


async def test_an_unreachable_server_is_retried_then_reported(embeddings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(EmbeddingsUnavailableError, match="ConnectError"):
            await embeddings(url=url, max_retries=1).embed_texts(["a"])


async def test_a_connect_timeout_is_reported(embeddings):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        host, port = full.getsockname()
        others = [socket.socket() for _ in range(3)]
        for other in others:  # the queue of connections nobody accepts
            other.setblocking(False)
            other.connect_ex((host, port))
        provider = embeddings(
            url=f"http://{host}:{port}/v1", connect_timeout=0.1, timeout=30, max_retries=0
        )
        with pytest.raises(EmbeddingsUnavailableError, match="ConnectTimeout"):
            await provider.embed_texts(["a"])
        for other in others:
            other.close()


async def test_nine_of_ten_vectors_are_refused(endpoint, embeddings):
    endpoint.script = [one_missing]
    with pytest.raises(EmbeddingMismatchError, match="9 vectors for 10 texts"):
        await embeddings().embed_texts(TEXTS)


async def test_a_vector_of_another_length_is_refused(endpoint, embeddings):
    endpoint.dimension = DIMENSION + 1
    with pytest.raises(EmbeddingMismatchError, match="a vector of length 9 for text 0, not 8"):
        await embeddings().embed_texts(TEXTS)


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
async def test_a_vector_that_is_not_finite_is_refused(endpoint, embeddings, value):
    body = f'{{"data": [{{"index": 0, "embedding": [{", ".join([value] * DIMENSION)}]}}]}}'
    endpoint.script = [lambda *_: (200, {}, body.encode())]
    with pytest.raises(EmbeddingMismatchError, match="finite"):
        await embeddings().embed_texts(["a"])


async def test_an_index_that_comes_twice_is_refused(endpoint, embeddings):
    def twice(endpoint, request):
        status, headers, body = good(endpoint, request)
        body["data"][1]["index"] = 0
        return status, headers, body

    endpoint.script = [twice]
    with pytest.raises(EmbeddingMismatchError, match="unexpected indexes"):
        await embeddings().embed_texts(TEXTS)


async def test_vectors_that_are_no_numbers_are_refused(endpoint, embeddings):
    endpoint.script = [lambda *_: (200, {}, {"data": [{"embedding": "abc"}]})]
    with pytest.raises(EmbeddingEndpointError):
        await embeddings().embed_texts(["a"])
    assert len(endpoint.requests) == 1


PAGES = [b"<html>busy</html>", b"[]", b"null", {"data": [{}]}, {}, {"error": {"message": "soon"}}]


@pytest.mark.parametrize("body", PAGES)
async def test_a_page_in_place_of_vectors_is_tried_again(endpoint, embeddings, body):
    endpoint.script = [lambda *_: (200, {}, body)]
    assert await embeddings().embed_texts(["a"]) == [vector_of("a")]
    assert len(endpoint.requests) == 2


async def test_an_endpoint_that_returns_only_pages_is_unavailable(endpoint, embeddings):
    endpoint.script = [lambda *_: (200, {}, b"<html>busy " + KEY.encode())] * 9
    with pytest.raises(EmbeddingsUnavailableError, match="unexpected response.*busy") as caught:
        await embeddings(max_retries=2).embed_texts(["a"])
    assert len(endpoint.requests) == 3
    assert KEY not in str(caught.value)
    assert "embeddings.url" in caught.value.hint


async def test_health_asks_the_endpoint_and_embeds_nothing(endpoint, embeddings, waits):
    provider = embeddings()
    endpoint.script = [fails(404)]
    assert (await provider.health_check()).is_healthy()
    assert endpoint.requests[0]["line"] == "GET /v1/models HTTP/1.1"
    assert endpoint.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert (await provider.health_check()).is_healthy()
    assert len(endpoint.requests) == 1  # the answer is kept for some seconds
    for answer, text in ((fails(503), "status 503"), (fails(401), "status 401")):
        waits.clock.advance(11)
        endpoint.script = [answer]
        health = await provider.health_check()
        assert (health.is_healthy(), text in health.error) == (False, True)
    waits.clock.advance(11)
    endpoint.script = [hangs]
    assert "did not respond within 0.05 s" in (await provider.health_check(0.05)).error


async def test_health_of_an_endpoint_that_is_not_there_names_it(embeddings):
    provider = embeddings(url="http://127.0.0.1:9/v1")
    health = await provider.health_check()
    assert not health.is_healthy()
    assert "127.0.0.1:9" in health.error
    assert KEY not in health.error


async def test_health_knows_that_the_last_batch_got_no_vectors(endpoint, embeddings, waits):
    provider = embeddings(max_retries=0)
    endpoint.script = [fails(500), fails(404)]
    with pytest.raises(EmbeddingsUnavailableError):
        await provider.embed_texts(["a"])
    assert "500" in (await provider.health_check()).error
    await provider.embed_texts(["a"])
    assert (await provider.health_check()).is_healthy()
    endpoint.script = [fails(500)]
    with pytest.raises(EmbeddingsUnavailableError):
        await provider.embed_texts(["a"])
    waits.clock.advance(61)
    endpoint.script = [fails(404)]
    assert (await provider.health_check()).is_healthy()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 301])
async def test_a_refusal_is_not_tried_again_and_has_a_hint(endpoint, embeddings, status):
    endpoint.script = [fails(status)]
    with pytest.raises(EmbeddingEndpointError, match=f"{status} status") as caught:
        await embeddings().embed_texts(TEXTS)
    assert caught.value.details["status"] == status
    assert caught.value.hint
    assert len(endpoint.requests) == 1


async def test_a_used_up_account_is_a_refusal_although_it_is_a_429(endpoint, embeddings):
    body = {"error": {"message": "no money", "code": "insufficient_quota"}}
    endpoint.script = [fails(429, body=body)]
    with pytest.raises(EmbeddingEndpointError, match="no money"):
        await embeddings().embed_texts(TEXTS)


async def test_one_refused_batch_ends_the_others(endpoint, embeddings):
    endpoint.script = [fails(400), hangs, hangs, hangs]
    with anyio.fail_after(60):
        with pytest.raises(EmbeddingEndpointError):
            await embeddings(batch_size=1).embed_texts(TEXTS)


async def test_a_dimension_is_sent_only_when_configured_and_names_another_model(
    endpoint, embeddings
):
    provider = embeddings(send_dimension=True)
    await provider.embed_texts(["a"])
    assert endpoint.requests[0]["dimensions"] == DIMENSION
    assert provider.model_id == f"m-{DIMENSION}" != embeddings().model_id


async def test_the_key_is_in_no_log_no_error_and_no_repr(endpoint, embeddings, caplog, logs):
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    endpoint.script = [fails(500, body=echo), fails(401, body=echo), fails(400, body=KEY.encode())]
    provider = embeddings()
    shown = [repr(provider), repr(provider.config), str(provider.config)]
    for _ in range(2):
        with pytest.raises(EmbeddingEndpointError) as caught:
            await provider.embed_texts(["a"])
        error = caught.value
        shown += [str(error), repr(error), repr(error.to_dict())]
        shown.append(repr(pickle.loads(pickle.dumps(error)).to_dict()))
    assert len(endpoint.requests) == 3
    assert [text for text in shown if KEY in text] == []
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("lexigram")]
    assert KEY not in "\n".join([*ours, logs.text])
    assert "***" in str(caught.value)


async def test_a_header_with_the_key_is_not_logged_by_the_client_library(
    endpoint, embeddings, caplog
):
    caplog.set_level(logging.DEBUG)
    await embeddings().embed_texts(["a"])
    assert KEY not in caplog.text
    assert "Bearer" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": ""}, "requires embeddings.model"),
        ({"model": "unheard-of", "dimension": None}, "unknown vector dimension"),
        ({"url": "ftp://host/v1"}, "not an http"),
        ({"url": "localhost"}, "not an http"),
        ({"url": f"http://user:{KEY}@localhost"}, "contains a user or a password"),
    ],
)
async def test_settings_that_cannot_work_are_refused_at_once(embeddings, settings, problem):
    with pytest.raises(EmbeddingModelError, match=problem) as caught:
        embeddings(**settings)
    assert KEY not in str(caught.value)


async def test_the_length_of_well_known_models_is_known(embeddings):
    assert embeddings(model="text-embedding-3-small", dimension=None).dimension == 1536


async def test_a_closed_provider_opens_again(endpoint, embeddings):
    provider = embeddings()
    await provider.embed_texts(["a"])
    await provider.aclose()
    await provider.aclose()
    assert await provider.embed_texts(["a"]) == [vector_of("a")]


async def test_a_transport_of_ones_own_is_used():
    def answer(request):
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [0.5] * DIMENSION}]})

    config = EmbeddingConfig(provider="openai", model="m", dimension=DIMENSION)
    provider = OpenAIEmbeddings(config, transport=httpx.MockTransport(answer))
    assert await provider.embed_texts(["a"]) == [[0.5] * DIMENSION]
    await provider.aclose()


async def test_429_500_nine_of_ten_and_a_hang_are_retried_refused_or_ended_and_nothing_is_half_stored(
    endpoint, embeddings, waits
):
    """The issue's "must hold", through the whole worker on a real queue."""
    endpoint.script = [fails(429, {"Retry-After": "0.05"}), fails(500), one_missing, hangs]
    store, queue = MemoryVectorStore(), InMemoryTaskQueue()
    provider = embeddings(timeout=3, max_retries=2)
    worker = BatchEmbeddingWorker(
        store, provider, queue, retry=JobRetry(base_delay=1.0, jitter=False)
    )
    job_id = await worker.embed_batch(TEXTS, "docs")
    # 429 and 500 are tried again by the provider; the third answer is short, and refused.
    await worker.drain()
    assert (await queue.get_job(job_id)).status is JobStatus.RETRYING
    assert "9 vectors for 10 texts" in (await queue.get_job(job_id)).last_error
    assert await _count(store) == 0
    # The queue hands the job out again; the hang is ended, and the next answer is good.
    waits.clock.advance(1.5)
    await worker.drain()
    assert len(endpoint.requests) == 5
    assert await _count(store) == 10
    result = await worker.get_result(job_id)
    assert result.success
    assert result.embeddings_generated == 10


async def _count(store):
    if not await store.collection_exists("docs"):
        return 0
    return await (await store.get_collection("docs")).count()
