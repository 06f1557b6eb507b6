"""OpenAI-compatible endpoints: ``POST /v1/embeddings``."""

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
from lexigram.ai.workers.embeddings.batching import batches, estimate_tokens
from lexigram.ai.workers.embeddings.checks import check_texts, check_vectors
from lexigram.ai.workers.embeddings.config import EmbeddingConfig
from lexigram.ai.workers.embeddings.errors import (
    EmbeddingEndpointError,
    EmbeddingMismatchError,
    EmbeddingModelError,
    EmbeddingsUnavailableError,
)
from lexigram.config.secrets import MASK
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.leasing.backoff import Backoff
from lexigram.observability import get_logger
from lexigram.resilience.limiter import RateLimiter

logger = get_logger(__name__)

# The dimension of other models must be configured.
KNOWN_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}

_RETRY_BACKOFF = Backoff(first=0.5, cap=30.0)
_BUSY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Error codes with status 429 that a retry does not help.
_PERMANENT_CODES = ("insufficient_quota", "billing_hard_limit_reached")
_PROBLEM_SECONDS = 60.0  # a failed batch makes the health check fail for so long
_HEALTH_SECONDS = 10.0  # a health check result is cached for so long
_MAX_ERROR_LENGTH = 500  # characters of a response in an error message


class OpenAIEmbeddings:
    """Implements EmbeddingProviderProtocol over HTTP.

    Texts are sent in batches by number and tokens, ``connections`` at a time. After a
    Retry-After all requests of this object wait. Network and server errors are retried, client
    errors are not. The call returns a vector for every text, or raises. The API key is not in any
    log, error or ``repr``.
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
                "embeddings.provider openai requires embeddings.model",
                hint="set embeddings.model to a model of the endpoint, such as text-embedding-3-small",
            )
        dimension = config.dimension or KNOWN_DIMENSIONS.get(config.model)
        if dimension is None:
            raise EmbeddingModelError(
                f"unknown vector dimension of model {config.model!r}",
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
        self._limits = _RequestLimits(config, sleep)
        self._slots = anyio.CapacityLimiter(config.connections)
        # error and time of the last failed batch; error and time of the last health check
        self._last_problem: tuple[str, float] | None = None
        self._health_problem: str | None = None
        self._health_at = -_HEALTH_SECONDS

    def __repr__(self) -> str:
        return f"<OpenAIEmbeddings {self.model_id} at {self._public_url}>"

    @property
    def _public_url(self) -> str:
        # The query may contain a secret.
        return str(self._url.copy_with(query=None))

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        checked = check_texts(texts)
        parts = list(batches(checked, self.config.batch_size, self._limits.max_tokens))
        answers: dict[int, list[list[float]]] = {}
        failures: list[Exception] = []

        async def embed_part(part: range) -> None:
            async with self._slots:
                try:
                    answers[part.start] = await self._embed_batch(checked[part.start : part.stop])
                    self._last_problem = None
                except Exception as error:  # noqa: BLE001 - raised below, without a group
                    if isinstance(error, EmbeddingsUnavailableError):
                        self._last_problem = error.message, clock.monotonic()
                    failures.append(error)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for part in parts:
                tasks.start_soon(embed_part, part)
        if failures:
            raise failures[0]
        return [vector for part in parts for vector in answers[part.start]]

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """Check ``GET /models`` and the last batch.

        The result is cached for some seconds. A 404 of an endpoint without that route is healthy.
        No text is embedded.
        """
        if clock.monotonic() - self._health_at >= _HEALTH_SECONDS:
            self._health_at, self._health_problem = clock.monotonic(), await self._probe(timeout)
        problem = self._health_problem
        if problem is None and self._last_problem is not None:
            text, at = self._last_problem
            problem = text if clock.monotonic() - at < _PROBLEM_SECONDS else None
        return HealthCheckResult(
            component="embeddings",
            status=HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY,
            error=problem,
            details={"model": self.model_id},
        )

    async def _probe(self, timeout: float) -> str | None:
        """Return why the endpoint is unavailable; None if it responds."""
        url = self._url.copy_with(path=self._url.path.removesuffix("/embeddings") + "/models")
        try:
            with anyio.fail_after(timeout):
                client = await self._get_client()
                response = await client.get(url, headers=self._headers())
        except TimeoutError:
            return f"{self._public_url} did not respond within {timeout:g} s"
        except httpx.TransportError as error:
            return self._mask_key(f"{self._public_url}: {type(error).__name__} {error}".rstrip())
        if response.status_code >= 500 or response.status_code in (401, 403):
            return f"{self._public_url} responded with status {response.status_code}"
        return None

    async def aclose(self) -> None:
        """Close the connections; the next call opens new connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # --- one batch ------------------------------------------------------------------------------

    async def _embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed one batch, with retries."""
        tokens = sum(map(estimate_tokens, texts))
        last: _TransientFailure | None = None
        reason_to_stop = f"it took longer than {self.config.total_timeout:g} s"
        # Waiting for our own rate limits does not count towards the timeout.
        await self._limits.permit(tokens)
        with anyio.move_on_after(self.config.total_timeout):
            for attempt in range(1, self.config.max_retries + 2):
                await self._limits.wait_until_allowed()
                answer = await self._send(texts)
                if not isinstance(answer, _TransientFailure):
                    return answer
                last = answer
                if attempt <= self.config.max_retries:
                    await self._wait_before_retry(last, attempt)
                    await self._limits.permit(tokens)
            reason_to_stop = "all retries are used up"
        raise self._unavailable(last, reason_to_stop)

    async def _wait_before_retry(self, failure: _TransientFailure, attempt: int) -> None:
        delay = failure.retry_after
        if delay is None:
            delay = _RETRY_BACKOFF.delay(attempt)
        elif delay > self.config.max_wait:
            reason_to_stop = f"its Retry-After is longer than {self.config.max_wait:g} s"
            raise self._unavailable(failure, reason_to_stop)
        logger.info(
            "embedding request will be retried",
            model=self.model_id,
            reason=failure.reason,
            delay=round(delay, 3),
        )
        if failure.is_endpoint_wide:
            self._limits.pause(delay)
        else:
            await self._sleep(delay)

    async def _send(self, texts: Sequence[str]) -> list[list[float]] | _TransientFailure:
        body: dict[str, Any] = {
            "model": self.config.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if self.config.send_dimension:
            body["dimensions"] = self.dimension
        try:
            # httpx limits each read only, so a slow response could take forever.
            with anyio.fail_after(self.config.timeout):
                client = await self._get_client()
                response = await client.post(self._url, json=body, headers=self._headers())
        except TimeoutError:
            return _TransientFailure(f"no response within {self.config.timeout:g} s")
        except httpx.TransportError as error:
            return _TransientFailure(self._mask_key(f"{type(error).__name__}: {error}"))
        if response.is_success:
            self._limits.apply_headers(response.headers)
            # In a thread: parsing a hundred long vectors takes time.
            return await anyio.to_thread.run_sync(self._read, response, len(texts))
        return self._handle_error_response(response)

    def _headers(self) -> dict[str, str]:
        key = self.config.api_key.reveal()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _handle_error_response(self, response: httpx.Response) -> _TransientFailure:
        text, code = self._error_of(response)
        reason = f"{response.status_code} {text}".strip()
        if response.status_code not in _BUSY_STATUSES or code in _PERMANENT_CODES:
            raise EmbeddingEndpointError(
                f"{self._public_url} rejected the request: {reason}",
                details={"status": response.status_code, "model": self.config.model},
                hint=_HINTS.get(response.status_code, "see the message of the endpoint"),
            )
        failure = _TransientFailure(
            reason,
            retry_after=_seconds(response.headers),
            is_endpoint_wide=response.status_code in (429, 503, 529),
        )
        if failure.is_endpoint_wide and failure.retry_after is not None:
            # Also after the last retry of this batch: other batches follow.
            self._limits.pause(min(failure.retry_after, self.config.max_wait))
        return failure

    def _read(self, response: httpx.Response, count: int) -> list[list[float]] | _TransientFailure:
        try:
            data: Any = response.json()
            items = [(item.get("index"), item["embedding"]) for item in data["data"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # A gateway may return its error page with status 200; a retry may succeed.
            logger.debug("the response is not a list of embeddings", exc_info=error)
            answer = " ".join(self._mask_key(response.text)[:_MAX_ERROR_LENGTH].split())
            return _TransientFailure(f"unexpected response {answer!r}")
        indexes = [index for index, _ in items]
        if any(index is not None for index in indexes):
            if len(items) == count and sorted(map(str, indexes)) != sorted(map(str, range(count))):
                raise EmbeddingMismatchError(
                    f"{self._public_url} returned unexpected indexes for {count} vectors: {indexes[:10]}",
                    details={"texts": count},
                    hint="check the endpoint; the vectors were discarded",
                )
            items.sort(key=lambda item: item[0] if isinstance(item[0], int) else -1)
        vectors = [vector for _, vector in items]
        if not all(_is_vector(vector) for vector in vectors):
            raise EmbeddingEndpointError(
                f"{self._public_url} returned vectors that are not lists of numbers",
                hint="use an endpoint that supports encoding_format float",
            )
        return check_vectors(vectors, count, self.dimension, self.model_id)

    def _error_of(self, response: httpx.Response) -> tuple[str, str]:
        """Return text and code of an OpenAI error, else the start of the response."""
        try:
            apply_headers: Any = response.json()
        except ValueError:
            apply_headers = None
        found: Any = None
        if isinstance(apply_headers, dict):
            found = cast("dict[str, Any]", apply_headers).get("error")
        if isinstance(found, dict):
            error = cast("dict[str, Any]", found)
            text, code = str(error.get("message", "")), str(error.get("code") or "")
        else:
            text, code = str(found or response.text), ""
        return self._mask_key(text)[:_MAX_ERROR_LENGTH], code

    def _mask_key(self, text: str) -> str:
        """Mask the API key, which some endpoints repeat in errors."""
        key = self.config.api_key.reveal()
        return text.replace(key, MASK) if key else text

    def _unavailable(
        self, failure: _TransientFailure | None, reason_to_stop: str
    ) -> EmbeddingsUnavailableError:
        reason = "no response" if failure is None else failure.reason
        return EmbeddingsUnavailableError(
            f"{self._public_url} returned no embeddings, and {reason_to_stop}: {reason}",
            retry_after=None if failure is None else failure.retry_after,
            details={"model": self.config.model},
            hint="retry later, or check embeddings.url; /embeddings is appended to it",
        )

    async def _get_client(self) -> httpx.AsyncClient:
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
    """Load the certificates once per process: it blocks for 20 ms and more."""
    return httpx.create_ssl_context()


class _TransientFailure:
    """A failed request that may be retried."""

    def __init__(
        self, reason: str, *, retry_after: float | None = None, is_endpoint_wide: bool = False
    ) -> None:
        self.reason = reason
        self.retry_after = retry_after
        # the endpoint is overloaded, so that all requests wait
        self.is_endpoint_wide = is_endpoint_wide


class _RequestLimits:
    """Limits requests by the configured rates and by the headers of the endpoint."""

    def __init__(self, config: EmbeddingConfig, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._sleep = sleep
        requests, tokens = config.requests_per_minute, config.tokens_per_minute
        # An even rate: endpoints reject bursts.
        self._requests: RateLimiter | None = None
        if requests is not None:
            self._requests = RateLimiter(requests, 60.0, burst=1, sleep=sleep)
        self._tokens: RateLimiter | None = None
        self.max_tokens = config.max_batch_tokens
        if tokens is not None:
            self.max_tokens = min(config.max_batch_tokens, max(1, int(tokens)))
            self._tokens = RateLimiter(tokens, 60.0, burst=self.max_tokens, sleep=sleep)
        self._not_before = 0.0

    async def permit(self, tokens: int) -> None:
        """Wait until the configured rates allow a request of so many tokens."""
        if self._requests is not None:
            await self._requests.acquire()
        if self._tokens is not None:
            await self._tokens.acquire(min(tokens, self.max_tokens))

    async def wait_until_allowed(self) -> None:
        """Wait until the pause of the endpoint is over."""
        while (left := self._not_before - clock.monotonic()) > 0:
            await self._sleep(left)

    def pause(self, seconds: float) -> None:
        """Pause all requests."""
        self._not_before = max(self._not_before, clock.monotonic() + seconds)

    def apply_headers(self, headers: Mapping[str, str]) -> None:
        """Pause if the rate limit headers report no remaining requests or tokens."""
        for what in ("requests", "tokens"):
            if headers.get(f"x-ratelimit-remaining-{what}", "").strip() == "0":
                reset = _duration(headers.get(f"x-ratelimit-reset-{what}", ""))
                if reset is not None:
                    self.pause(min(reset, _LONGEST_RESET))


_LONGEST_RESET = 60.0  # seconds; longer resets are not trusted

_HINTS = {
    400: "use smaller chunks: a text may exceed the token limit of the model",
    401: "check embeddings.api_key",
    403: "use a key with access to this model",
    404: "check embeddings.url and embeddings.model",
    413: "lower embeddings.batch_size or embeddings.max_batch_tokens",
    429: "check the quota and billing of the account",
}

# Bounded, as the pattern is tried at every digit of a header.
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _duration(text: str) -> float | None:
    """Parse ``1m30.5s`` or a plain number to seconds; None if invalid."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Parse Retry-After, seconds or a date, to seconds; None if missing or invalid."""
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
            "embeddings.url is not a valid URL",
            hint="use a URL such as https://api.openai.com/v1",
            cause=error,
        ) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise EmbeddingModelError(
            "embeddings.url is not an http or https URL",
            hint="use a URL such as https://api.openai.com/v1",
        )
    if parsed.userinfo:  # the client library logs URLs unmasked
        raise EmbeddingModelError(
            "embeddings.url contains a user or a password", hint="set embeddings.api_key instead"
        )
    return parsed.copy_with(path=parsed.path.rstrip("/") + "/embeddings")
