"""The state of jobs in Redis: a JobStore, and the stores of progress and submissions.

Every method is one script, so one transaction (``_job_scripts``); the time is the server's.
Jobs are as safe as the persistence of that Redis (``appendfsync``), and no safer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha1
from itertools import count
from typing import Any, Final

import anyio
from msgspec.msgpack import decode as unpack
from msgspec.msgpack import encode as pack

from lexigram.contracts.infra.tasks.errors import TaskQueueError
from lexigram.contracts.infra.tasks.protocols import NewsProtocol
from lexigram.contracts.infra.tasks.types import (
    ClaimedJob,
    EndKind,
    JobStatus,
    LeaseState,
    ProgressSnapshot,
    ProgressStatus,
)
from lexigram.leasing import Backoff
from lexigram.leasing.subscriptions import Subscriptions, Waiter
from lexigram.queue.backends.redis import _job_scripts as scripts
from lexigram.queue.runtime.background import Background
from lexigram.resilience.redis import connect, to_its_end
from lexigram.tasks.idempotency import Submission
from lexigram.tasks.intake import NewJob
from lexigram.tasks.store import (
    Admission,
    Cancelled,
    End,
    Ended,
    Finished,
    Row,
    State,
    Tended,
    Topic,
    claimed_from,
    state_after,
    status_of,
)

URL: Final = "redis://localhost:6379/0"
# The braces keep all keys on one node of a cluster: scripts touch several of them.
PREFIX: Final = "lexigram:{jobs}"
PAGE: Final = 500  # jobs that one script looks at, removes or lets go
AGAIN: Final = Backoff(first=0.1, cap=2.0)


class RedisJobs:
    """Implements JobStore on one Redis 7.0 or later; connects on first use.

    ``RedisProgress(jobs)`` and ``RedisSubmissions(jobs)`` keep the rest there too. ``aclose``
    gives the connections back.
    """

    is_durable = True
    joins = False

    def __init__(
        self,
        url: str = URL,
        *,
        prefix: str = PREFIX,
        poll: float = 1.0,
        timeout: float = 5.0,
        max_connections: int = 20,
    ) -> None:
        self.prefix = prefix
        self._client = connect(
            url,
            timeout,
            purpose="the state of jobs in redis",
            setting="queue_jobs.redis_url",
            max_connections=max_connections,
        )
        self._poll = poll
        self._turn = count()
        self._news = Subscriptions()
        self._background = Background(f"jobs.{prefix}")
        self._opening = anyio.Lock()

    async def aclose(self) -> None:
        """Stop listening and close the connections."""
        await self._background.close()
        await self._client.aclose()

    # --- in and out -----------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Admission]:
        rows = unpack(await self.ask(scripts.INSERT, [pack([_wire(new) for new in jobs])]))
        return [Admission(kind=kind, job_id=name) for kind, name in rows]

    async def claim(
        self, holder: str, limit: int, queues: Sequence[str], lease: float
    ) -> Sequence[ClaimedJob]:
        turn = next(self._turn)
        in_turn = [queues[(turn + number) % len(queues)] for number in range(len(queues))]
        rows = await self.ask(scripts.CLAIM, [holder, limit, lease, *in_turn])
        return [claimed_from(_row(row)) for row in unpack(rows)]

    async def extend(self, claims: Sequence[ClaimedJob], lease: float) -> Sequence[LeaseState]:
        names = pack([_lease(claim) for claim in claims])
        states = await self.ask(scripts.EXTEND, [lease, names])
        return [LeaseState(_text(state)) for state in states]

    async def finish(self, ends: Sequence[End]) -> Finished:
        packed = await self.ask(scripts.FINISH, [pack([_end(end) for end in ends])])
        answers, others = unpack(packed)
        return Finished(
            statuses=[_status(answer) for answer in answers], others=_read_ended(others)
        )

    async def tend(self) -> Tended:
        promoted, others, due = await self.ask(scripts.TEND, [PAGE])
        return Tended(
            promoted=promoted,
            others=_read_ended(others),
            next_due=max(0.0, float(due)) if due else None,
        )

    # --- by hand --------------------------------------------------------------------------------

    async def cancel(self, job_id: str) -> Cancelled:
        found, running, others = await self.ask(scripts.CANCEL, [job_id])
        return Cancelled(found=bool(found), running=bool(running), others=_read_ended(others))

    async def revive(self, job_id: str, states: Sequence[State]) -> bool:
        return bool(await self.ask(scripts.REVIVE, [job_id, *states]))

    async def bury(self, job: NewJob, reason: str, error: str, notes: str) -> None:
        if not await self.ask(scripts.BURY, [job.job.id, reason, error, notes]):
            fields = ["reason", reason, "error", error, "notes", notes]
            await self.ask(scripts.INSERT, [pack([_wire(job, State.FAILED, fields)])])

    async def get(self, job_id: str) -> Row | None:
        row = await self.ask(scripts.GET, [job_id])
        return None if row is None else _row(unpack(row))

    async def find(
        self,
        *,
        queue: str | None,
        states: Sequence[State],
        retried: bool | None,
        name: str | None,
        limit: int,
        offset: int,
    ) -> Sequence[Row]:
        place = "failed" if tuple(states) == (State.FAILED,) else "ids"
        how = "" if retried is None else str(int(retried))
        such = [queue or "", name or "", how, *states]
        rows: list[Row] = []
        start = 0
        while len(rows) < offset + limit:
            looked, found = await self.ask(scripts.FIND, [place, start, start + PAGE - 1, *such])
            rows += map(_row, unpack(found))
            start += PAGE
            if looked < PAGE:
                break
        return rows[offset : offset + limit]

    async def count(self, queue: str | None, states: Sequence[State], retried: bool | None) -> int:
        cells = await self.command("HGETALL", f"{self.prefix}:counts")
        return sum(
            int(number)
            for cell, number in cells.items()
            if _counts(_text(cell).split("\n"), queue, states, retried)
        )

    async def delete(self, states: Sequence[State], job_id: str | None = None) -> int:
        if job_id is not None:
            return int(await self.ask(scripts.DELETE, [job_id, *states]))
        total, last = 0, "0"
        while last:
            gone, seen = await self.ask(scripts.DELETE_MANY, [last, PAGE, *states])
            total, last = total + gone, _text(seen)
        return total

    async def purge(self, older_than: float) -> int:
        return await self.purge_page_by_page(scripts.PURGE, [older_than])

    # --- news -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self, to: Topic | str) -> AsyncGenerator[NewsProtocol, None]:
        """Wake at writes of any process; at the poll interval when Redis is unavailable."""
        async with self._opening:
            if not self._background.is_open:
                await self._background.open()
                heard = anyio.Event()
                self._background.start(self._hear, heard, name="jobs.news")
                with anyio.move_on_after(self._poll):
                    await heard.wait()
        with self._news.open(to) as subscription:
            yield Waiter(subscription, self._poll)

    async def _hear(self, heard: anyio.Event) -> None:
        failures = 0
        while True:
            try:
                with self.translate_errors():
                    await self._hear_until_lost(heard)
            except TaskQueueError:
                failures += 1
                await anyio.sleep(AGAIN.delay(failures))  # waiters wake at the poll interval

    async def _hear_until_lost(self, heard: anyio.Event) -> None:
        async with self._client.pubsub() as news:
            await news.subscribe(f"{self.prefix}:news")
            heard.set()
            self._news.tell_all()  # something may have been missed
            while True:
                message = await news.get_message(ignore_subscribe_messages=True, timeout=self._poll)
                if message is not None:
                    self._news.tell(_text(message["data"]), "")

    # --- access to Redis ------------------------------------------------------------------------

    async def ask(self, script: str, arguments: Sequence[Any]) -> Any:
        """The answer of a script; a cancelled script has run as a whole or not at all."""
        with self.translate_errors():
            return await to_its_end(self._run(script, [self.prefix, *arguments]))

    async def _run(self, script: str, arguments: list[Any]) -> Any:
        from redis.exceptions import NoScriptError

        try:
            return await self._client.evalsha(_digest(script), 0, *arguments)
        except NoScriptError:  # its first use, or Redis was restarted
            return await self._client.eval(script, 0, *arguments)

    async def command(self, *command: Any) -> Any:
        """The answer of a command."""
        with self.translate_errors():
            return await to_its_end(self._client.execute_command(*command))

    async def purge_page_by_page(self, script: str, arguments: Sequence[Any]) -> int:
        """Run a script that removes a page, until a page is not full; how many it removed."""
        gone, last = 0, PAGE
        while last >= PAGE:
            last = int(await self.ask(script, [*arguments, PAGE]))
            gone += last
        return gone

    @contextmanager
    def translate_errors(self) -> Generator[None, None, None]:
        """The one place where errors of the client become errors of the queue."""
        from redis.exceptions import RedisError

        try:
            yield
        except (RedisError, OSError, TimeoutError) as error:
            raise TaskQueueError(
                f"the job store failed: {str(error) or type(error).__name__}",
                hint="check that Redis runs (7.0 or later) and queue_jobs.redis_url",
            ) from error


class RedisProgress:
    """Implements ProgressStore beside the jobs."""

    def __init__(self, jobs: RedisJobs) -> None:
        self._jobs = jobs

    async def report(self, snapshot: ProgressSnapshot) -> None:
        values = (snapshot.task_id, snapshot.current, snapshot.total, snapshot.message)
        await self._jobs.ask(scripts.REPORT, values)

    async def end(self, snapshot: ProgressSnapshot) -> None:
        values = (snapshot.task_id, snapshot.status.value, snapshot.message, snapshot.error)
        await self._jobs.ask(scripts.END_PROGRESS, values)

    async def get(self, task_id: str) -> ProgressSnapshot | None:
        fields = ("status", "done", "total", "message", "error")
        name = f"{self._jobs.prefix}:progress:{task_id}"
        status, done, total, message, error = await self._jobs.command("HMGET", name, *fields)
        if status is None:
            return None
        return ProgressSnapshot(
            task_id,
            int(done),
            int(total),
            ProgressStatus(_text(status)),
            _text(message),
            _text(error),
        )

    async def purge(self, older_than: float) -> int:
        return await self._jobs.purge_page_by_page(scripts.PURGE_SIDE, ["progress", older_than])

    @asynccontextmanager
    async def listening(self, task_id: str) -> AsyncGenerator[NewsProtocol, None]:
        async with self._jobs.listening(f"progress:{task_id}") as news:
            yield news


class RedisSubmissions:
    """Implements SubmissionStore beside the jobs."""

    def __init__(self, jobs: RedisJobs) -> None:
        self._jobs = jobs

    async def add(self, submission: Submission, task_name: str) -> bool:
        values = (submission.key, submission.task_id, task_name)
        return bool(await self._jobs.ask(scripts.SUBMIT, values))

    async def get(self, key: str) -> Submission | None:
        fields = ("task_id", "created_at", "is_completed", "result")
        name = f"{self._jobs.prefix}:submission:{key}"
        task_id, created_at, completed, result = await self._jobs.command("HMGET", name, *fields)
        if task_id is None:
            return None
        return Submission(
            key=key,
            task_id=_text(task_id),
            created_at=float(created_at),
            is_completed=completed is not None,
            result=None if result is None else _text(result),
        )

    async def complete(self, key: str, result: str | None) -> None:
        await self._jobs.ask(scripts.COMPLETE, (key, result or "", int(result is not None)))

    async def purge(self, older_than: float) -> int:
        return await self._jobs.purge_page_by_page(scripts.PURGE_SIDE, ["submission", older_than])


def _wire(new: NewJob, state: State | None = None, outcome: Sequence[str] = ()) -> tuple[Any, ...]:
    """The values of one job for the script INSERT."""
    job = new.job
    needed, policy = "\n".join(job.depends_on), job.on_dependency_failure.value
    fields: list[Any] = ["name", job.name, "queue", job.queue]
    fields += ("max_retries", job.max_retries, "max_deliveries", job.max_deliveries)
    if new.payload:
        fields += ("payload", new.payload)
    if job.priority:
        fields += ("priority", job.priority)
    if needed:
        fields += ("depends_on", needed)
    if policy != scripts.SEEN["on_dependency_failure"]:
        fields += ("on_dependency_failure", policy)
    for name in _OPTIONAL:
        value = getattr(job, name)
        if value is not None:
            fields += (name, value)
    return (
        job.id,
        job.queue,
        job.priority,
        new.delay,
        "" if job.scheduled_at is None else job.scheduled_at.timestamp(),
        job.unique_key or "",
        job.idempotency_key or "",
        policy,
        needed,
        state or "",
        fields,
        outcome,
    )


_OPTIONAL: Final = (
    *("timeout", "result_ttl", "unique_key", "idempotency_key"),
    *("correlation_id", "causation_id"),
)


def _row(values: Mapping[str, Any]) -> Row:
    """A row of lexigram.tasks, from what the scripts return."""
    return {**scripts.SEEN, **values}


def _lease(claim: ClaimedJob) -> tuple[Any, ...]:
    return claim.job.id, str(claim.position), claim.holder, str(claim.fence)


def _end(end: End) -> tuple[Any, ...]:
    return (
        *_lease(end.claim),
        state_after(end.kind, end.delay).value,
        int(end.kind is EndKind.RETRY),
        int(end.kind is not EndKind.RELEASED),
        end.delay,
        end.result or "",
        end.ttl,
        end.error,
        end.reason,
    )


def _status(answer: Sequence[Any] | bool) -> JobStatus | None:
    return status_of(answer[0], answer[1]) if isinstance(answer, list) else None


def _read_ended(others: Iterable[Sequence[Any]]) -> list[Ended]:
    return [
        Ended(
            job_id=_text(one[0]),
            name=_text(one[1]),
            queue=_text(one[2]),
            status=JobStatus(_text(one[3])),
            reason=_text(one[4]),
        )
        for one in others
    ]


def _counts(
    cell: Sequence[str], queue: str | None, states: Sequence[State], retried: bool | None
) -> bool:
    where, state, again = cell
    return queue in (None, where) and state in states and retried in (None, again == "1")


def _text(value: bytes | str | None) -> str:
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else value


_DIGESTS: Final[dict[str, str]] = {}


def _digest(script: str) -> str:
    """The name under which Redis knows a script."""
    found = _DIGESTS.get(script)
    if found is None:
        found = _DIGESTS[script] = sha1(script.encode()).hexdigest()  # noqa: S324 - its naming
    return found
