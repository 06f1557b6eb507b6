"""What a protection costs when nothing goes wrong, and what a retry costs when something does."""

from __future__ import annotations

from collections.abc import AsyncIterator

from harness import Facts, Plan, Section, Work, measure, outcome, snippet

TITLE = "Resilience"
PEERS = ("tenacity", "pybreaker", "anyio")
BARE = "bare call"
NOTE = (
    "One awaited call of an async function that returns at once. tenacity alone is its decorator "
    "with the same stop and wait; the sleep between attempts takes no time on either side. "
    "pybreaker alone is `call` around the making of the coroutine, which guards nothing, as it "
    "cannot await: it is the price of its state machine."
)


async def parts(plan: Plan) -> AsyncIterator[Section | Facts]:
    works = [_success(), _second_attempt(), _breaker(), _others()]
    for work in works:
        for case in work.cases:
            assert await outcome(case) == 1, case.who
    await measure(works, plan)
    yield Section("Overhead of a call", NOTE, works)


async def answer():
    return 1


async def no_sleep(_seconds):
    return None


def make_flaky():
    calls = 0

    async def flaky():
        nonlocal calls
        calls += 1
        if calls % 2:
            raise OSError
        return 1

    return flaky


def _tenacity(func):
    import tenacity

    return tenacity.retry(
        stop=tenacity.stop_after_attempt(3),
        wait=tenacity.wait_random_exponential(1, 60),
        sleep=no_sleep,
        reraise=True,
    )(func)


def _policy():
    from lexigram.resilience import RetryPolicy

    return RetryPolicy(sleep=no_sleep)


def _success() -> Work:
    return Work(
        "retry, first attempt succeeds",
        "µs",
        BARE,
        [
            snippet(BARE, "result = await answer()", {"answer": answer}),
            snippet(
                "lexigram",
                "result = await policy.execute(answer)",
                {"policy": _policy(), "answer": answer},
            ),
            snippet("tenacity alone", "result = await call()", {"call": _tenacity(answer)}),
        ],
    )


def _second_attempt() -> Work:
    by_hand = "try:\n    result = await flaky()\nexcept OSError:\n    result = await flaky()"
    return Work(
        "retry, second attempt succeeds",
        "µs",
        "by hand",
        [
            snippet("by hand", by_hand, {"flaky": make_flaky()}),
            snippet(
                "lexigram",
                "result = await policy.execute(flaky)",
                {"policy": _policy(), "flaky": make_flaky()},
            ),
            snippet("tenacity alone", "result = await call()", {"call": _tenacity(make_flaky())}),
        ],
    )


def _breaker() -> Work:
    import pybreaker

    from lexigram.contracts.infra.resilience import CircuitBreakerConfig
    from lexigram.resilience import CircuitBreaker

    timed = CircuitBreaker(CircuitBreakerConfig(name="timed"))
    plain = CircuitBreaker(CircuitBreakerConfig(name="plain", timeout=None))
    call = "result = await breaker.call(answer)"
    return Work(
        "breaker, closed",
        "µs",
        BARE,
        [
            snippet(BARE, "result = await answer()", {"answer": answer}),
            snippet("lexigram, no time-out", call, {"breaker": plain, "answer": answer}),
            snippet("lexigram", call, {"breaker": timed, "answer": answer}),
            snippet(
                "pybreaker alone", call, {"breaker": pybreaker.CircuitBreaker(), "answer": answer}
            ),
        ],
    )


def _others() -> Work:
    from lexigram.resilience import Bulkhead, RateLimiter, ResiliencePipeline, Timeout

    patterns = {
        "time-out": Timeout(30),
        "bulkhead": Bulkhead(10),
        "rate limiter": RateLimiter(1e9),
        "pipeline of retry and bulkhead": ResiliencePipeline(_policy(), Bulkhead(10)),
    }
    call = "result = await pattern.execute(answer)"
    return Work(
        "the others",
        "µs",
        BARE,
        [
            snippet(BARE, "result = await answer()", {"answer": answer}),
            *(
                snippet(name, call, {"pattern": pattern, "answer": answer})
                for name, pattern in patterns.items()
            ),
        ],
    )
