"""A process with a shared breaker: ``worker.py <url> <prefix> <settings as JSON>``.

It is told what to do line by line, and answers each line with one. ``fail`` and ``answer`` are
calls that end at once; ``hang`` is one that never ends, and is answered once it is under way.
``many n`` makes n calls at once that all fail.
"""

import asyncio
import json
import sys

from lexigram.contracts.infra.resilience import CircuitBreakerConfig, CircuitOpenError
from lexigram.resilience import CircuitBreaker, RedisState


def say(**facts):
    print(json.dumps(facts), flush=True)


async def fail(number=0):
    await asyncio.sleep(0)
    raise OSError(number)


async def answer():
    return 1


async def hang():
    say(made="hang")
    await asyncio.Event().wait()


async def called(breaker, function, *args):
    try:
        await breaker.call(function, *args)
    except CircuitOpenError:
        return "refused"
    except OSError as error:
        return "own error" if error.args == args else f"another's error: {error!r}"
    return "answered"


async def many(breaker, count):
    """Outcomes of calls that run side by side; each carries an error of its own."""
    outcomes = await asyncio.gather(*(called(breaker, fail, n) for n in range(count)))
    return {outcome: outcomes.count(outcome) for outcome in set(outcomes)}


async def main():
    url, prefix, settings = sys.argv[1:]
    state = RedisState(url, prefix=prefix, timeout=10)
    config = CircuitBreakerConfig(name="shop", backend="redis", **json.loads(settings))
    breaker = CircuitBreaker(config, shared=state)
    functions = {"fail": (fail, 0), "answer": (answer,), "hang": (hang,)}
    say(ready=True)
    hanging = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order, *rest = line.split()
        if order == "many":
            say(outcomes=await many(breaker, int(rest[0])), state=breaker.state.value)
        elif order == "hang":
            task = asyncio.create_task(called(breaker, *functions["hang"]))
            hanging.add(task)
            task.add_done_callback(lambda done: say(made=done.result()))
        else:
            outcome = await called(breaker, *functions[order])
            say(made=outcome, state=breaker.state.value)


asyncio.run(main())
