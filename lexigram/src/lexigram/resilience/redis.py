"""The connection to the Redis that processes share breakers and limiters over, and its scripts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import anyio

from lexigram import clock as ambient
from lexigram.contracts.core.errors import ConfigurationError, InfrastructureError

_log = logging.getLogger(__name__)

# After a failure Redis is not called for so long; calls go on without it instead of waiting for it.
PAUSE = 1.0


class RedisState:
    """Runs scripts on one Redis. Connects on first use; ``aclose`` gives the connections back."""

    def __init__(
        self, url: str, *, prefix: str = "lexigram:resilience", timeout: float = 1.0
    ) -> None:
        self.prefix = prefix
        self._client = connect(
            url,
            timeout,
            purpose="sharing breakers and limiters over redis",
            setting="resilience.redis_url",
        )
        self._scripts: dict[str, Any] = {}
        self._silent_until = float("-inf")
        self._lost = False

    @property
    def answers(self) -> bool:
        """False for a moment after Redis did not answer."""
        return ambient.monotonic() >= self._silent_until

    async def run(self, script: str, keys: list[str], args: list[Any]) -> Any:
        """The answer of the script; InfrastructureError when Redis gives none."""
        if not self.answers:
            raise InfrastructureError("redis did not answer a moment ago; it is not asked now")
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = self._client.register_script(script)
        return await to_its_end(self._ask(known(keys=keys, args=args)))

    async def take(self, name: str, speed: float, burst: int, permits: int) -> float:
        """Take permits from the bucket called ``name``: 0, or seconds until they may be there."""
        key = f"{self.prefix}:bucket:{name}"
        return float(await self.run(BUCKET, [key], [speed, burst, permits]))

    async def ping(self) -> None:
        """Return when Redis answers; InfrastructureError when it does not."""
        await self._ask(self._client.ping())

    async def aclose(self) -> None:
        """Close the connections; the object may be used again and then opens new ones."""
        await self._client.aclose()

    async def _ask(self, question: Any) -> Any:
        from redis.exceptions import RedisError

        try:
            answer = await question
        except (RedisError, OSError) as error:
            self._silent_until = ambient.monotonic() + PAUSE
            if not self._lost:
                self._lost = True
                _log.warning(
                    "redis does not answer, this process guards its calls alone: %r", error
                )
            raise InfrastructureError(
                f"redis does not answer: {error!r}",
                hint="check that the server runs, and resilience.redis_url",
                cause=error,
            ) from error
        if self._lost:
            self._lost = False
            _log.warning("redis answers again; breakers and limiters are shared again")
        return answer


async def to_its_end(question: Coroutine[Any, Any, Any]) -> Any:
    """The answer; a cancellation passes when the question has been answered or timed out.

    The client loses a cancellation that meets its look at an idle connection, and who is
    cancelled must know that nothing of his is on its way to Redis any more.
    """
    task = asyncio.create_task(question)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        raise


def connect(
    url: str, timeout: float, *, purpose: str, setting: str, max_connections: int | None = None
) -> Any:
    """A client that tries everything once; ``purpose`` and ``setting`` are for the errors."""
    try:
        from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{purpose} needs the redis client",
            hint="pip install 'lexigram[redis]'",
            cause=error,
        ) from error
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),  # an outcome must not be counted twice
        **_driver_info_options(),
    }
    kind: Any = ConnectionPool
    if max_connections is not None:
        kind = BlockingConnectionPool
        options.update(max_connections=max_connections, timeout=timeout)
    try:
        return Redis.from_pool(kind.from_url(url, **options))
    except ValueError as error:
        raise ConfigurationError(
            f"{setting} is not usable: {error}",
            hint="it looks like redis://host:6379/0",
            cause=error,
        ) from error


def _driver_info_options() -> dict[str, Any]:
    # To introduce itself the client would look up its version: a disk access in the event loop.
    from importlib.util import find_spec

    newer = find_spec("redis.driver_info") is not None
    return {"driver_info": None} if newer else {"lib_name": None, "lib_version": None}


# A token bucket. The time is that of the server: clocks of processes differ.
BUCKET = """
local speed, burst, permits = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * speed)
local wait = 0
if tokens + 1e-9 >= permits then
    tokens = math.max(0, tokens - permits)
else
    wait = (permits - tokens) / speed
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / speed * 1000) + 1000)
return string.format('%.6f', wait)
"""

# A circuit: the same rules as the one in memory. ARGV: what to do, the token and the generation
# of the permit, then the settings. Answers: allowed, state, generation, milliseconds to wait.
CIRCUIT = """
local action, token, period = ARGV[1], ARGV[2], ARGV[3]
local failure_threshold, recovery = tonumber(ARGV[4]), tonumber(ARGV[5])
local success_threshold, width = tonumber(ARGV[6]), tonumber(ARGV[7])
local rate, half_open_max, lease = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local circuit, probes = KEYS[1], KEYS[2]
local buckets = 10
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HMGET', circuit, 'state', 'generation', 'opened_at', 'forced')
local state, generation = held[1] or 'closed', held[2] or string.format('%.0f', now)
local opened_at, forced = tonumber(held[3]) or 0, held[4]

-- The generation separates a new circuit from the one before it, and later answers from earlier ones.
if not held[1] then redis.call('HSET', circuit, 'state', state, 'generation', generation) end

local function change(new)
    generation = string.format('%.0f', math.max(tonumber(generation) + 1, now))
    state = new
    redis.call('DEL', circuit, probes)
    redis.call('HSET', circuit, 'state', new, 'generation', generation, 'opened_at', now)
end

local function answer(allowed, wait)
    -- A closed circuit nobody uses is forgotten; an open one is not.
    if state == 'closed' then redis.call('PEXPIRE', circuit, 86400000) end
    return {allowed, state, generation, wait}
end

-- Calls and failures within the window, this outcome included.
local function count(failed)
    local number = math.floor(now / width)
    local at = number % buckets
    if tonumber(redis.call('HGET', circuit, 'n' .. at)) ~= number then
        redis.call('HSET', circuit, 'n' .. at, number, 'c' .. at, 0, 'f' .. at, 0)
    end
    redis.call('HINCRBY', circuit, 'c' .. at, 1)
    redis.call('HINCRBY', circuit, 'f' .. at, failed)
    local calls, failures = 0, 0
    for i = 0, buckets - 1 do
        local bucket = redis.call('HMGET', circuit, 'n' .. i, 'c' .. i, 'f' .. i)
        if bucket[1] and tonumber(bucket[1]) > number - buckets then
            calls, failures = calls + tonumber(bucket[2]), failures + tonumber(bucket[3])
        end
    end
    return calls, failures
end

if action == 'reset' then
    change('closed')
    return answer(1, 0)
end
if action == 'open' then
    if state ~= 'open' then change('open') end
    redis.call('HSET', circuit, 'forced', 1)
    return answer(1, 0)
end
if action == 'enter' then
    if state == 'open' then
        if forced then return answer(0, -1) end
        if now < opened_at + recovery then return answer(0, opened_at + recovery - now) end
        change('half_open')
    end
    if state == 'half_open' then
        redis.call('ZREMRANGEBYSCORE', probes, '-inf', now)
        if redis.call('ZCARD', probes) >= half_open_max then return answer(0, -1) end
        redis.call('ZADD', probes, now + lease, token)
    end
    return answer(1, 0)
end

-- An outcome counts in the period its permit was given in; a probe whose lease ran out does not.
if action == 'cancelled' then
    redis.call('ZREM', probes, token)
    return answer(1, 0)
end
if period ~= generation then return answer(1, 0) end
if state == 'half_open' and redis.call('ZREM', probes, token) == 0 then return answer(1, 0) end
if state == 'closed' then
    if action == 'success' then
        redis.call('HSET', circuit, 'failures', 0)
        count(0)
    else
        local in_a_row = redis.call('HINCRBY', circuit, 'failures', 1)
        local calls, failures = count(1)
        local many = failures >= failure_threshold and failures / calls >= rate
        if in_a_row >= failure_threshold or many then change('open') end
    end
elseif state == 'half_open' then
    if action == 'failure' then
        change('open')
    elseif redis.call('HINCRBY', circuit, 'successes', 1) >= success_threshold then
        change('closed')
    end
end
return answer(1, 0)
"""
