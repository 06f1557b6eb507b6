"""Any endpoint that speaks the form of OpenAI's ``POST /v1/embeddings``."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from ssl import SSLContext
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx

from lexigram import clock
from lexigram.ai.workers.embeddings.batching import batches, estimated_tokens
from lexigram.ai.workers.embeddings.checks import checked_texts, checked_vectors
from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.embeddings.errors import (
    EmbeddingEndpointError,
    EmbeddingMismatchError,
    EmbeddingModelError,
    EmbeddingsUnavailableError,
)
from lexigram.config.secrets import MASK
from lexigram.observability import get_logger
from lexigram.resilience.limiter import RateLimiter
from lexigram.sql.leasing.backoff import Backoff

logger = get_logger(__name__)

# Vectors of other models have a length only their users know.
KNOWN_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}

_AGAIN = Backoff(first=0.5, cap=30.0)
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Told as 429, and waiting does not help.
_FOR_GOOD = ("insufficient_quota", "billing_hard_limit_reached")
_SHOWN = 500  # characters of an answer that an error shows


class OpenAIEmbeddings:
    """Implements EmbeddingProviderProtocol over HTTP.

    Texts go in batches by number and by tokens, ``connections`` at a time. Told to wait, all
    requests of this object wait; failures of the network and of the server are tried again,
    refusals are not. All texts get their vector, or the call raises and nothing is returned.
    The key is in no log, no error and no ``repr``.
    """

    def __init__(
        self,
        config: EmbeddingConfig,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        if not config.model:
            raise EmbeddingModelError(
                "embeddings.provider openai needs embeddings.model",
                hint="name the model of the endpoint, such as text-embedding-3-small",
            )
        dimension = config.dimension or KNOWN_DIMENSIONS.get(config.model)
        if dimension is None:
            raise EmbeddingModelError(
                f"how long the vectors of {config.model!r} are is not known here",
                details={"model": config.model},
                hint="set embeddings.dimension",
            )
        self.config = config
        self.dimension = dimension
        # A shortened vector is not comparable with a whole one.
        self.model_id = f"{config.model}-{dimension}" if config.send_dimension else config.model
        self._url = _endpoint(config.url)
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._opening = anyio.Lock()
        self._sleep = sleep
        self._pace = _Pace(config, sleep)
        self._slots = anyio.CapacityLimiter(config.connections)

    def __repr__(self) -> str:
        return f"<OpenAIEmbeddings {self.model_id} at {self._shown_url}>"

    @property
    def _shown_url(self) -> str:
        # What is in a query may be as secret as the key.
        return str(self._url.copy_with(query=None))

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, as the endpoint made them."""
        given = checked_texts(texts)
        parts = list(batches(given, self.config.batch_size, self._pace.most_tokens))
        answers: dict[int, list[list[float]]] = {}
        failures: list[Exception] = []

        async def ask(part: range) -> None:
            async with self._slots:
                try:
                    answers[part.start] = await self._asked(given[part.start : part.stop])
                except Exception as error:  # noqa: BLE001 - raised below, without a group
                    failures.append(error)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for part in parts:
                tasks.start_soon(ask, part)
        if failures:
            raise failures[0]
        return [vector for part in parts for vector in answers[part.start]]

    async def aclose(self) -> None:
        """Close the connections; the next call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # --- one batch ------------------------------------------------------------------------------

    async def _asked(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of one batch, tried again as long as that may help."""
        tokens = sum(map(estimated_tokens, texts))
        last: _Trouble | None = None
        why = f"took longer than {self.config.total_timeout:g} s"
        # Not part of the time: a batch that waits for our own limits lacks nothing.
        await self._pace.permit(tokens)
        with anyio.move_on_after(self.config.total_timeout):
            for attempt in range(1, self.config.max_retries + 2):
                await self._pace.turn()
                answer = await self._tried(texts)
                if not isinstance(answer, _Trouble):
                    return answer
                last = answer
                if attempt <= self.config.max_retries:
                    await self._wait(last, attempt)
                    await self._pace.permit(tokens)
            why = "there is no try left"
        raise self._unavailable(last, why)

    async def _wait(self, trouble: _Trouble, attempt: int) -> None:
        delay = trouble.retry_after
        if delay is None:
            delay = _AGAIN.delay(attempt)
        elif delay > self.config.max_wait:
            why = f"it asks to wait longer than {self.config.max_wait:g} s"
            raise self._unavailable(trouble, why)
        logger.info(
            "embeddings will be asked for again",
            model=self.model_id,
            reason=trouble.reason,
            delay=round(delay, 3),
        )
        if trouble.is_for_all:
            self._pace.hold(delay)
        else:
            await self._sleep(delay)

    async def _tried(self, texts: Sequence[str]) -> list[list[float]] | _Trouble:
        body: dict[str, Any] = {
            "model": self.config.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if self.config.send_dimension:
            body["dimensions"] = self.dimension
        key = self.config.api_key.reveal()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            # httpx limits each wait for bytes, so an endpoint that drips could take for ever.
            with anyio.fail_after(self.config.timeout):
                client = await self._opened()
                response = await client.post(self._url, json=body, headers=headers)
        except TimeoutError:
            return _Trouble(f"no answer within {self.config.timeout:g} s")
        except httpx.TransportError as error:
            return _Trouble(self._clean(f"{type(error).__name__}: {error}"))
        if response.is_success:
            self._pace.told(response.headers)
            # In a thread: a hundred long vectors are megabytes of digits.
            return await anyio.to_thread.run_sync(self._read, response, len(texts))
        return self._refused(response)

    def _refused(self, response: httpx.Response) -> _Trouble:
        text, code = self._error_of(response)
        reason = f"{response.status_code} {text}".strip()
        if response.status_code not in _BUSY or code in _FOR_GOOD:
            raise EmbeddingEndpointError(
                f"{self._shown_url} refused: {reason}",
                details={"status": response.status_code, "model": self.config.model},
                hint=_HINTS.get(response.status_code, "see what the endpoint says"),
            )
        trouble = _Trouble(
            reason,
            retry_after=_seconds(response.headers),
            is_for_all=response.status_code in (429, 503, 529),
        )
        if trouble.is_for_all and trouble.retry_after is not None:
            # Also after the last try of this batch: others are still to come.
            self._pace.hold(min(trouble.retry_after, self.config.max_wait))
        return trouble

    def _read(self, response: httpx.Response, count: int) -> list[list[float]]:
        try:
            data: Any = response.json()
            items = [(item.get("index"), item["embedding"]) for item in data["data"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EmbeddingEndpointError(
                f"{self._shown_url} answered what is no list of embeddings",
                details={"answer": self._clean(response.text)[:_SHOWN]},
                hint="check embeddings.url: /embeddings is added to it",
                cause=error,
            ) from error
        indexes = [index for index, _ in items]
        if any(index is not None for index in indexes):
            if len(items) == count and sorted(map(str, indexes)) != sorted(map(str, range(count))):
                raise EmbeddingMismatchError(
                    f"{self._shown_url} numbered {count} vectors {indexes[:10]}",
                    details={"texts": count},
                    hint="nothing was kept of it; the endpoint does not keep its promise",
                )
            items.sort(key=lambda item: item[0] if isinstance(item[0], int) else -1)
        vectors = [vector for _, vector in items]
        if not all(_is_vector(vector) for vector in vectors):
            raise EmbeddingEndpointError(
                f"{self._shown_url} answered vectors that are no lists of numbers",
                hint="it must understand encoding_format float",
            )
        return checked_vectors(vectors, count, self.dimension, self.model_id)

    def _error_of(self, response: httpx.Response) -> tuple[str, str]:
        """Text and code of an error in OpenAI's form, else the beginning of the answer."""
        try:
            told: Any = response.json()
        except ValueError:
            told = None
        found: Any = None
        if isinstance(told, dict):
            found = cast("dict[str, Any]", told).get("error")
        if isinstance(found, dict):
            error = cast("dict[str, Any]", found)
            text, code = str(error.get("message", "")), str(error.get("code") or "")
        else:
            text, code = str(found or response.text), ""
        return self._clean(text)[:_SHOWN], code

    def _clean(self, text: str) -> str:
        """Without the key, which some endpoints repeat when they refuse it."""
        key = self.config.api_key.reveal()
        return text.replace(key, MASK) if key else text

    def _unavailable(self, trouble: _Trouble | None, why: str) -> EmbeddingsUnavailableError:
        reason = "no answer" if trouble is None else trouble.reason
        return EmbeddingsUnavailableError(
            f"{self._shown_url} gave no embeddings, and {why}: {reason}",
            retry_after=None if trouble is None else trouble.retry_after,
            details={"model": self.config.model},
            hint="try again later, or raise timeout, max_retries and total_timeout of embeddings",
        )

    async def _opened(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = httpx.AsyncClient(
                    verify=await anyio.to_thread.run_sync(_certificates),
                    timeout=httpx.Timeout(self.config.timeout, connect=self.config.connect_timeout),
                    limits=httpx.Limits(max_connections=self.config.connections),
                    transport=self._transport,
                )
            return self._client


@cache
def _certificates() -> SSLContext:
    """Read once per process: that takes 20 ms and more, and blocks."""
    return httpx.create_ssl_context()


class _Trouble:
    """A try that failed in a way that may pass."""

    def __init__(
        self, reason: str, *, retry_after: float | None = None, is_for_all: bool = False
    ) -> None:
        self.reason = reason
        self.retry_after = retry_after
        # the endpoint is busy, so that another request would fare no better
        self.is_for_all = is_for_all


class _Pace:
    """When the next request may go: by our own limits, and by what the endpoint told."""

    def __init__(self, config: EmbeddingConfig, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._sleep = sleep
        requests, tokens = config.requests_per_minute, config.tokens_per_minute
        # An even pace: a whole minute's worth at once is what limits of endpoints punish.
        self._requests: RateLimiter | None = None
        if requests is not None:
            self._requests = RateLimiter(requests, 60.0, burst=1, sleep=sleep)
        self._tokens: RateLimiter | None = None
        self.most_tokens = config.max_batch_tokens
        if tokens is not None:
            self.most_tokens = min(config.max_batch_tokens, max(1, int(tokens)))
            self._tokens = RateLimiter(tokens, 60.0, burst=self.most_tokens, sleep=sleep)
        self._not_before = 0.0

    async def permit(self, tokens: int) -> None:
        """Wait until our own limits let a request of so many tokens go."""
        if self._requests is not None:
            await self._requests.acquire()
        if self._tokens is not None:
            await self._tokens.acquire(min(tokens, self.most_tokens))

    async def turn(self) -> None:
        """Wait as long as the endpoint asked to."""
        while (left := self._not_before - clock.monotonic()) > 0:
            await self._sleep(left)

    def hold(self, seconds: float) -> None:
        """Nobody asks for so long."""
        self._not_before = max(self._not_before, clock.monotonic() + seconds)

    def told(self, headers: Mapping[str, str]) -> None:
        """An answer that says nothing is left: wait until there is, before being refused."""
        for what in ("requests", "tokens"):
            if headers.get(f"x-ratelimit-remaining-{what}", "").strip() == "0":
                reset = _duration(headers.get(f"x-ratelimit-reset-{what}", ""))
                if reset is not None:
                    self.hold(min(reset, _LONGEST_RESET))


_LONGEST_RESET = 60.0  # seconds; an endpoint that says a day is asked again before

_HINTS = {
    400: "a text may be longer than the model takes: make chunks smaller",
    401: "check embeddings.api_key",
    403: "the key may not use this model",
    404: "check embeddings.url and embeddings.model",
    413: "lower embeddings.batch_size or embeddings.max_batch_tokens",
    429: "the account has used up what it paid for",
}

# Bounded, as it is tried at every digit of a header.
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _duration(text: str) -> float | None:
    """Seconds in ``1m30.5s`` or a plain number; None when it is neither."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _seconds(headers: Mapping[str, str]) -> float | None:
    """What Retry-After asks for: seconds, or a date; None when it says nothing usable."""
    in_ms = headers.get("retry-after-ms", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", in_ms):
        return float(in_ms) / 1000
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    now = datetime.fromtimestamp(clock.timestamp(), UTC)
    return max(0.0, (moment - now).total_seconds())


def _is_vector(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(
        isinstance(number, int | float) and not isinstance(number, bool)
        for number in cast("list[object]", value)
    )


def _endpoint(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise EmbeddingModelError(
            "embeddings.url is no address", hint="such as https://api.openai.com/v1", cause=error
        ) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise EmbeddingModelError(
            "embeddings.url is no http or https address", hint="such as https://api.openai.com/v1"
        )
    if parsed.userinfo:  # the client library logs addresses as they are
        raise EmbeddingModelError(
            "embeddings.url holds a user or a password", hint="put the key into embeddings.api_key"
        )
    return parsed.copy_with(path=parsed.path.rstrip("/") + "/embeddings")
