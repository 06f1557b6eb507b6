"""The dead-letter worker: collects dead letters, retries them, and reports permanent failures."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from attrs import evolve

from lexigram import clock
from lexigram.ai.workers.constants import (
    DEFAULT_BASE_BACKOFF,
    DEFAULT_CHECK_INTERVAL,
    DEFAULT_MAX_RETRIES,
)
from lexigram.ai.workers.dlq.classifier import ClassifierProtocol, ErrorClassifier
from lexigram.ai.workers.dlq.dead_letter import (
    NOTIFIED_BY,
    DeadLetterState,
    Failure,
    RetryRule,
    StoredDeadLetter,
    archive,
    mark_retried,
    record_failure,
    undo_retry,
)
from lexigram.ai.workers.dlq.notifiers import FunctionNotifier, LogNotifier, NotifierProtocol
from lexigram.ai.workers.dlq.sources import (
    ADDED,
    AddedJobSource,
    DeadLetterSource,
    Outcome,
    OutcomeKind,
    job_of,
)
from lexigram.ai.workers.dlq.store import DeadLetterStore, MemoryDeadLetterStore
from lexigram.ai.workers.telemetry import Telemetry
from lexigram.ai.workers.types import DLQItem, DLQStats, FailureCategory
from lexigram.concurrency import BackgroundTask, call
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.infra.tasks.protocols import JobProtocol, TaskQueueProtocol
from lexigram.contracts.infra.tasks.types import DeadLetter
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.observability.tracing import TracerProtocol
from lexigram.observability import get_logger

logger = get_logger(__name__)

NOTIFY_SECONDS = 30.0  # timeout of a notifier call
SOURCE_SECONDS = 60.0  # timeout of a call of a source
CONFIRM_SECONDS = 3600.0  # a retried message counts as handled after so long
_PAGE_SIZE = 100  # dead letters per read
_REREAD_SECONDS = 3600.0  # interval of reading all dead letters, not only new ones
_SEND_GRACE_SECONDS = 60.0  # maximum time between marking a retry and starting it
_MAX_REMEMBERED = 10_000  # dead letters whose last failure is cached

T = TypeVar("T")


class DeadLetterQueueWorker:
    """Checks dead letters every ``check_interval`` seconds; several processes may share a database.

    A dead letter is retried after ``base_backoff`` · 2^n seconds, at most an hour, up to
    ``max_retries`` times, and removed after a success. Permanent failures (PERMANENT,
    INVALID_INPUT, or all retries used) are reported to the notifiers once, and kept until they
    are retried, archived or removed manually.
    """

    def __init__(
        self,
        main_queue: TaskQueueProtocol,
        dlq_queue: TaskQueueProtocol | None = None,
        worker_id: str = "dlq",
        check_interval: float = DEFAULT_CHECK_INTERVAL,
        max_retries: int = DEFAULT_MAX_RETRIES,
        base_backoff: float = DEFAULT_BASE_BACKOFF,
        *,
        sources: Sequence[DeadLetterSource] = (),
        store: DeadLetterStore | None = None,
        classifier: ClassifierProtocol | None = None,
        notifiers: Sequence[NotifierProtocol] | None = None,
        automatic: bool = True,
        confirm: float = CONFIRM_SECONDS,
        notify_timeout: float = NOTIFY_SECONDS,
        source_timeout: float = SOURCE_SECONDS,
        tracer: TracerProtocol | None = None,
        metrics: MetricsProtocol | None = None,
    ) -> None:
        self.main_queue = main_queue
        # queue for retries of added jobs
        self.dlq_queue = main_queue if dlq_queue is None else dlq_queue
        self.worker_id = worker_id
        self.check_interval = check_interval
        self.max_retries = max_retries
        self.base_backoff = base_backoff
        # dead letters that are not archived, as of the last check
        self.dead_letter_count = 0
        self._rule = RetryRule(max_retries=max_retries, base=base_backoff)
        self._sources = {
            source.name: source for source in (*sources, AddedJobSource(self.dlq_queue))
        }
        self._store = MemoryDeadLetterStore() if store is None else store
        self._classifier = ErrorClassifier() if classifier is None else classifier
        self._notifiers = list(notifiers) if notifiers is not None else [LogNotifier()]
        self._telemetry = Telemetry(None, tracer, metrics)
        self._automatic = automatic
        self._confirm = confirm
        self._notify_timeout = notify_timeout
        self._source_timeout = source_timeout
        self._task = BackgroundTask(f"worker.{worker_id}.loop", self._run)
        # (source, id) -> last failure: most dead letters of a check are already known
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._reread_at = 0.0
        # source -> error of the last read
        self._problems: dict[str, str] = {}

    # --- lifecycle -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the periodic check; a second call while it runs does nothing."""
        await self._task.start()

    async def stop(self) -> None:
        """Stop after the current check."""
        await self._task.stop()

    async def wait(self) -> None:
        """Wait until the worker ends; raise the error that ended it."""
        await self._task.wait()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while running, DEGRADED while a source cannot be read."""
        running = self._task.is_running
        status = HealthStatus.HEALTHY if running else HealthStatus.UNHEALTHY
        if running and self._problems:
            status = HealthStatus.DEGRADED
        problems = "; ".join(f"{name}: {text}" for name, text in self._problems.items())
        return HealthCheckResult(
            component=f"worker.dlq.{self.worker_id}",
            status=status,
            message=problems or ("running" if running else "not running"),
            error=problems or None,
            details={"dead_letters": self.dead_letter_count, "sources": list(self._sources)},
        )

    def set_notification_handler(self, handler: Callable[[DLQItem], Any]) -> None:
        """Set a function, sync or async, as an additional notifier; it replaces the previous one."""
        others = [each for each in self._notifiers if not isinstance(each, FunctionNotifier)]
        self._notifiers = [*others, FunctionNotifier(handler)]

    # --- for callers ----------------------------------------------------------------------------

    async def add_failed_job(
        self, job: JobProtocol | Mapping[str, Any], error: str | BaseException
    ) -> None:
        """Add a failed job; a second failure of the same id is counted."""
        dead_letter_id, payload = job_of(job)
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        category = self._classifier.classify(error, job)
        now = clock.timestamp()

        def change(old: StoredDeadLetter | None) -> StoredDeadLetter | None:
            at = now if old is None else max(now, old.last_failure + 1e-3)
            failure = Failure(
                source=ADDED,
                id=dead_letter_id,
                payload=payload,
                error=text,
                category=category,
                failed_at=at,
            )
            return record_failure(old, failure, self._rule)

        await self._store.change(ADDED, dead_letter_id, change)
        await self._recount()

    async def retry_item(self, job_id: str, source: str | None = None) -> bool:
        """Retry a dead letter now, regardless of category and retry count; False if unknown.

        False also while a retry is running.
        """
        dead_letter = await self._find(job_id, source)
        if dead_letter is None or dead_letter.state is DeadLetterState.RETRYING:
            return False
        done = await self._retry(dead_letter, manual=True)
        await self._recount()
        return done

    async def archive_item(self, job_id: str, source: str | None = None) -> bool:
        """Archive a dead letter; False if unknown."""
        dead_letter = await self._find(job_id, source)
        if dead_letter is None:
            return False
        now = clock.timestamp()
        done = await self._change_existing(dead_letter, lambda old: archive(old, now))
        if done is not None:
            await self._increment("archived")
        await self._recount()
        return done is not None

    async def remove_item(self, job_id: str, source: str | None = None) -> bool:
        """Delete a dead letter permanently, also at its source; False if unknown."""
        dead_letter = await self._find(job_id, source)
        if dead_letter is None:
            return False
        dead_letter_source = self._sources.get(dead_letter.source)
        if dead_letter_source is not None:
            await dead_letter_source.delete(dead_letter)
        await self._remove(dead_letter, "deleted")
        await self._recount()
        return True

    async def get_item(self, job_id: str, source: str | None = None) -> DLQItem | None:
        """Return a dead letter, or None; the latest if several sources have the id."""
        dead_letter = await self._find(job_id, source)
        return None if dead_letter is None else dead_letter.to_item()

    async def get_items(
        self, category: FailureCategory | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """List dead letters as data, latest failure first."""
        found = await self._store.find(category=category, limit=limit, offset=offset)
        return [dead_letter.to_item().to_dict() for dead_letter in found]

    async def get_stats(self) -> DLQStats:
        """Return the number of dead letters by category, and total counts of actions."""
        counts, statistics = await self._store.counts(), await self._store.statistics()
        by_category: Counter[str] = Counter()
        for (category, _), number in counts.items():
            by_category[category] += number
        return DLQStats(
            total_items=by_category.total(),
            by_category=dict(by_category),
            retried_count=statistics.get("retried", 0),
            archived_count=statistics.get("archived", 0),
            deleted_count=statistics.get("deleted", 0),
            permanent_failures=statistics.get("permanent", 0),
            succeeded_count=statistics.get("succeeded", 0),
        )

    # --- one check -------------------------------------------------------------------------------

    async def check(self) -> None:
        """Collect dead letters, settle retries, start due retries, and notify."""
        with self._telemetry.measure("dead_letters", "check") as work:
            await self.collect()
            await self._settle()
            if self._automatic:
                await self._retry_due()
            await self._notify()
            await self._recount()
            if self._problems:
                work.fail("; ".join(self._problems.values()))

    async def collect(self) -> int:
        """Read the dead letters of the sources; returns the number of new failures."""
        read_all = clock.monotonic() >= self._reread_at
        new_count = 0
        for source in self._sources.values():
            try:
                new_count += await call(partial(self._read, source, read_all=read_all))
            except Exception as error:  # noqa: BLE001 - an unavailable source does not block the others
                self._problems[source.name] = f"{type(error).__name__}: {error}"
                logger.warning("reading dead letters failed", source=source.name, error=str(error))
            else:
                self._problems.pop(source.name, None)
        if read_all:
            self._reread_at = clock.monotonic() + _REREAD_SECONDS
        return new_count

    async def _run(self, task: BackgroundTask) -> None:
        task.set_ready()
        while not task.stopping.is_set():
            await self.check()
            await task.pause(self.check_interval)

    async def _read(self, source: DeadLetterSource, *, read_all: bool) -> int:
        new_count, offset = 0, 0
        present: set[str] = set()
        while True:
            page = await self._call_source(source, source.failures, _PAGE_SIZE, offset)
            present.update(dead_letter.message_id for dead_letter in page)
            fresh = 0
            for dead_letter in page:
                fresh += await self._record(_failure(source.name, dead_letter, self._classifier))
            new_count, offset = new_count + fresh, offset + len(page)
            # Latest first: after a page without new failures there are no more.
            if len(page) < _PAGE_SIZE or not (fresh or read_all):
                break
        if read_all:
            await self._remove_missing(source, present)
        return new_count

    async def _call_source(
        self, source: DeadLetterSource, method: Callable[..., Awaitable[T]], /, *args: Any
    ) -> T:
        limit, name = self._source_timeout, f"source {source.name} of dead letters"
        return await call(method, *args, timeout=limit, name=name)

    async def _record(self, failure: Failure) -> bool:
        key = failure.source, failure.id
        if self._seen.get(key) == failure.failed_at:
            return False
        changed = False

        def change(old: StoredDeadLetter | None) -> StoredDeadLetter | None:
            nonlocal changed
            new = record_failure(old, failure, self._rule)
            changed = new is not old
            return new

        await self._store.change(*key, change)
        self._seen[key] = failure.failed_at
        self._seen.move_to_end(key)
        while len(self._seen) > _MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return changed

    async def _remove_missing(self, source: DeadLetterSource, present: set[str]) -> None:
        """Remove waiting dead letters that were retried or deleted directly at their source."""
        if source.name == ADDED:
            return
        async for dead_letter in self._iterate(
            source=source.name, states=(DeadLetterState.WAITING,)
        ):
            if dead_letter.id not in present and not await self._call_source(
                source, source.holds, dead_letter.id
            ):
                await self._remove(dead_letter, "gone")

    async def _settle(self) -> None:
        """Check the outcome of running retries."""
        async for dead_letter in self._iterate(states=(DeadLetterState.RETRYING,)):
            source = self._sources.get(dead_letter.source)
            if source is None:
                continue
            try:
                await call(self._settle_one, source, dead_letter)
            except Exception as error:  # noqa: BLE001 - an unavailable source does not block the others
                logger.warning(
                    "reading the outcome of a retry failed",
                    dead_letter=dead_letter.id,
                    error=str(error),
                )

    async def _settle_one(self, source: DeadLetterSource, dead_letter: StoredDeadLetter) -> None:
        outcome = await self._call_source(source, source.outcome, dead_letter)
        age = clock.timestamp() - (dead_letter.retried_at or 0.0)
        if outcome.kind is OutcomeKind.SUCCEEDED:
            await self._remove(dead_letter, "succeeded")
        elif outcome.kind is OutcomeKind.FAILED:
            new_count = await self._record(self._build_failure(dead_letter, outcome))
            if not new_count and age > _SEND_GRACE_SECONDS:
                await self._undo_retry(dead_letter, None)
        elif outcome.kind is OutcomeKind.UNKNOWN:
            if await self._call_source(source, source.holds, dead_letter.id):
                if age > _SEND_GRACE_SECONDS:  # the process ended between marking and retrying
                    await self._undo_retry(dead_letter, None)
            elif age >= self._confirm:
                await self._remove(dead_letter, "succeeded")

    async def _retry_due(self) -> None:
        now = clock.timestamp()
        async for dead_letter in self._iterate(states=(DeadLetterState.WAITING,), due_before=now):
            await self._retry(dead_letter, manual=False)

    async def _retry(self, dead_letter: StoredDeadLetter, *, manual: bool) -> bool:
        """Mark the dead letter, then retry it, so that only one process retries it."""
        source = self._sources.get(dead_letter.source)
        if source is None:
            return False
        now = clock.timestamp()
        marked = await self._change_existing(
            dead_letter,
            lambda old: (
                mark_retried(old, now)
                if old.state is not DeadLetterState.RETRYING and (manual or old.is_due(now))
                else old
            ),
        )
        if marked is None:
            return False
        try:
            present = await self._call_source(source, source.retry, marked)
        except Exception as error:
            await self._undo_retry(marked, f"{type(error).__name__}: {error}")
            if manual:
                raise
            logger.warning(
                "retry of a dead letter failed", dead_letter=dead_letter.id, error=str(error)
            )
            return False
        await self._increment("retried")
        if not present:
            await self._remove(marked, "gone")
        logger.info(
            "dead letter retried",
            dead_letter=dead_letter.id,
            source=dead_letter.source,
            n=marked.retry_count,
        )
        return present

    async def _notify(self) -> None:
        """Report permanent failures; each notifier is called once per dead letter."""
        async for dead_letter in self._iterate(states=(DeadLetterState.WAITING,), unnotified=True):
            # Marked before the call, so that no other process, or this one after a crash, repeats it.
            claimed = await self._change_existing(
                dead_letter,
                lambda old: evolve(old, notified=True) if old.needs_notification else old,
            )
            if claimed is not None:
                await self._notify_about(claimed)

    async def _notify_about(self, dead_letter: StoredDeadLetter) -> None:
        notified = set(dead_letter.notes.get(NOTIFIED_BY, []))
        if not notified:
            await self._increment("permanent")
        for notifier in self._notifiers:
            if notifier.name in notified:
                continue
            try:
                limit, name = self._notify_timeout, f"notifier {notifier.name}"
                await call(notifier.notify, dead_letter.to_item(), timeout=limit, name=name)
            except Exception as error:  # noqa: BLE001 - the boundary to the user's notifier
                logger.warning(
                    "notifier failed; the call is repeated at the next check",
                    notifier=notifier.name,
                    dead_letter=dead_letter.id,
                    error=str(error),
                )
            else:
                notified.add(notifier.name)
        done = all(notifier.name in notified for notifier in self._notifiers)
        await self._change_existing(
            dead_letter,
            lambda old: evolve(
                old, notified=done, notes={**old.notes, NOTIFIED_BY: sorted(notified)}
            ),
        )

    # --- dead letters --------------------------------------------------------------------------------

    async def _find(self, dead_letter_id: str, source: str | None) -> StoredDeadLetter | None:
        found = await self._store.find(dead_letter_id=dead_letter_id, source=source, limit=1)
        return found[0] if found else None

    async def _iterate(self, **filters: Any) -> AsyncIterator[StoredDeadLetter]:
        """Yield dead letters page by page; concurrent removals do not skip others."""
        seen: set[tuple[str, str]] = set()
        while True:
            page = await self._store.find(**filters, limit=_PAGE_SIZE + len(seen))
            fresh = [each for each in page if (each.source, each.id) not in seen]
            if not fresh:
                return
            for dead_letter in fresh:
                seen.add((dead_letter.source, dead_letter.id))
                yield dead_letter

    async def _change_existing(
        self, dead_letter: StoredDeadLetter, change: Callable[[StoredDeadLetter], StoredDeadLetter]
    ) -> StoredDeadLetter | None:
        """Change an existing dead letter; None if it is missing or unchanged."""
        changed = False

        def change_known(old: StoredDeadLetter | None) -> StoredDeadLetter | None:
            nonlocal changed
            new = None if old is None else change(old)
            changed = new is not old
            return new

        new = await self._store.change(dead_letter.source, dead_letter.id, change_known)
        return new if changed else None

    async def _undo_retry(self, dead_letter: StoredDeadLetter, error: str | None) -> None:
        now = clock.timestamp()
        await self._change_existing(
            dead_letter,
            lambda old: (
                undo_retry(old, self._rule, now, error)
                if old.state is DeadLetterState.RETRYING
                else old
            ),
        )

    async def _remove(self, dead_letter: StoredDeadLetter, reason: str) -> None:
        was_there = False

        def change(old: StoredDeadLetter | None) -> StoredDeadLetter | None:
            nonlocal was_there
            was_there = old is not None
            return None

        await self._store.change(dead_letter.source, dead_letter.id, change)
        self._seen.pop((dead_letter.source, dead_letter.id), None)
        if was_there:
            await self._increment(reason)
            if reason == "succeeded":
                logger.info(
                    "dead letter retried successfully",
                    dead_letter=dead_letter.id,
                    source=dead_letter.source,
                )

    def _build_failure(self, dead_letter: StoredDeadLetter, outcome: Outcome) -> Failure:
        return Failure(
            source=dead_letter.source,
            id=dead_letter.id,
            payload=dead_letter.payload,
            error=outcome.error or dead_letter.last_error,
            category=self._classifier.classify(
                outcome.error or dead_letter.last_error, dead_letter.payload
            ),
            failed_at=outcome.failed_at,
        )

    async def _increment(self, what: str) -> None:
        await self._store.increment(what)
        self._telemetry.count_dead_letter(what)

    async def _recount(self) -> None:
        counts = await self._store.counts()
        self.dead_letter_count = sum(
            number for (_, state), number in counts.items() if state != DeadLetterState.ARCHIVED
        )
        self._telemetry.set_dead_letter_gauge(self.dead_letter_count)


def _failure(source: str, dead_letter: DeadLetter, classifier: ClassifierProtocol) -> Failure:
    error = str(dead_letter.metadata.get("error") or dead_letter.reason)
    payload: Any = dead_letter.payload
    job_data: Mapping[str, Any] = (
        cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else {}
    )
    notes = {
        key: dead_letter.metadata[key]
        for key in ("topic", "group", "backend")
        if isinstance(dead_letter.metadata.get(key), str)
    }
    return Failure(
        source=source,
        id=dead_letter.message_id,
        payload=_make_storable(payload),
        error=error,
        category=classifier.classify(error, {**job_data, "reason": dead_letter.reason}),
        failed_at=dead_letter.failed_at.timestamp(),
        notes={**notes, "reason": dead_letter.reason, "attempts": dead_letter.attempts},
    )


def _make_storable(payload: Any) -> Any:
    """Return the payload, or its repr if it is not JSON; the source has the original."""
    from lexigram.serialization import SerializationError, dumps

    try:
        dumps(payload)
    except SerializationError:
        return repr(payload)
    return payload
