"""Collects dead letters, tries again what may work, and tells of the rest once."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

import anyio
from attrs import evolve

from lexigram import clock
from lexigram.ai.workers.background import BackgroundTask, pause
from lexigram.ai.workers.constants import (
    DEFAULT_BASE_BACKOFF,
    DEFAULT_CHECK_INTERVAL,
    DEFAULT_MAX_RETRIES,
)
from lexigram.ai.workers.dlq.classifier import ClassifierProtocol, ErrorClassifier
from lexigram.ai.workers.dlq.letters import (
    TOLD,
    Failure,
    Letter,
    LetterState,
    RetryRule,
    archived,
    failed,
    sent,
    unsent,
)
from lexigram.ai.workers.dlq.notices import FunctionNotifier, LogNotifier, NotifierProtocol
from lexigram.ai.workers.dlq.sources import (
    ADDED,
    AddedJobs,
    LetterSource,
    Outcome,
    OutcomeKind,
    job_of,
)
from lexigram.ai.workers.dlq.store import LetterStore, MemoryLetters
from lexigram.ai.workers.types import DLQItem, DLQStats, FailureCategory
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.infra.tasks.protocols import JobProtocol, TaskQueueProtocol
from lexigram.contracts.infra.tasks.types import DeadLetter
from lexigram.observability import get_logger

logger = get_logger(__name__)

CONFIRM_SECONDS = 3600.0  # a message that did not come back for so long was handled
_PAGE = 100  # letters read at once
_REREAD_SECONDS = 3600.0  # all letters are looked at, not only new ones
_SEND_GRACE_SECONDS = 60.0  # between marking a letter as sent and sending it lies less
_REMEMBERED = 10_000  # letters whose last failure is known without asking the store


class DeadLetterQueueWorker:
    """Looks every ``check_interval`` seconds; several processes may do it on one database.

    A letter is tried again after ``base_backoff`` · 2^n seconds, at most an hour, up to
    ``max_retries`` times; one that succeeded leaves. What cannot work (PERMANENT,
    INVALID_INPUT) and what used up its tries is told to the notifiers, once, and stays until a
    person retries, archives or removes it.
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
        sources: Sequence[LetterSource] = (),
        store: LetterStore | None = None,
        classifier: ClassifierProtocol | None = None,
        notifiers: Sequence[NotifierProtocol] | None = None,
        automatic: bool = True,
        confirm: float = CONFIRM_SECONDS,
    ) -> None:
        self.main_queue = main_queue
        # where added jobs go when they are tried again
        self.dlq_queue = main_queue if dlq_queue is None else dlq_queue
        self.worker_id = worker_id
        self.check_interval = check_interval
        self.max_retries = max_retries
        self.base_backoff = base_backoff
        # letters that are there and not archived, as of the last look
        self.dead_letter_count = 0
        self._rule = RetryRule(max_retries=max_retries, base=base_backoff)
        self._sources = {source.name: source for source in (*sources, AddedJobs(self.dlq_queue))}
        self._store = MemoryLetters() if store is None else store
        self._classifier = ErrorClassifier() if classifier is None else classifier
        self._notifiers = list(notifiers) if notifiers is not None else [LogNotifier()]
        self._automatic = automatic
        self._confirm = confirm
        self._task = BackgroundTask(f"worker.{worker_id}.loop", self._run)
        # (source, id) -> last failure: most letters of a look are no news
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._reread_at = 0.0
        # source -> why its letters could not be read at the last look
        self._problems: dict[str, str] = {}

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to look; a second call while it runs does nothing."""
        self._task.start()

    async def stop(self) -> None:
        """End after the look that is going on."""
        await self._task.stop()

    async def wait(self) -> None:
        """Return when it was stopped; raise what it died of."""
        await self._task.wait()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:
        """HEALTHY while it looks, DEGRADED while it cannot read a source."""
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
        """Also tell this function, sync or async; it takes the place of the one before."""
        others = [each for each in self._notifiers if not isinstance(each, FunctionNotifier)]
        self._notifiers = [*others, FunctionNotifier(handler)]

    # --- for callers ----------------------------------------------------------------------------

    async def add_failed_job(
        self, job: JobProtocol | Mapping[str, Any], error: str | BaseException
    ) -> None:
        """Keep a job that failed; a second failure of the same id is counted."""
        letter_id, payload = job_of(job)
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        category = self._classifier.classify(error, job)
        now = clock.timestamp()

        def change(old: Letter | None) -> Letter | None:
            at = now if old is None else max(now, old.last_failure + 1e-3)
            failure = Failure(
                source=ADDED,
                id=letter_id,
                payload=payload,
                error=text,
                category=category,
                failed_at=at,
            )
            return failed(old, failure, self._rule)

        await self._store.change(ADDED, letter_id, change)
        await self._recount()

    async def retry_item(self, job_id: str, source: str | None = None) -> bool:
        """Try a letter again now, whatever its category and tries; False when unknown.

        False too while it is being tried.
        """
        letter = await self._found(job_id, source)
        if letter is None or letter.state is LetterState.RETRYING:
            return False
        done = await self._sent_again(letter, by_hand=True)
        await self._recount()
        return done

    async def archive_item(self, job_id: str, source: str | None = None) -> bool:
        """Keep a letter without ever trying it; False when unknown."""
        letter = await self._found(job_id, source)
        if letter is None:
            return False
        now = clock.timestamp()
        done = await self._claimed(letter, lambda old: archived(old, now))
        if done is not None:
            await self._store.add_figure("archived")
        await self._recount()
        return done is not None

    async def remove_item(self, job_id: str, source: str | None = None) -> bool:
        """Drop a letter for good, here and where it came from; False when unknown."""
        letter = await self._found(job_id, source)
        if letter is None:
            return False
        origin = self._sources.get(letter.source)
        if origin is not None:
            await origin.drop(letter)
        await self._forget(letter, "deleted")
        await self._recount()
        return True

    async def get_item(self, job_id: str, source: str | None = None) -> DLQItem | None:
        """One letter, or None; the latest when several sources have one of this id."""
        letter = await self._found(job_id, source)
        return None if letter is None else letter.item()

    async def get_items(
        self, category: FailureCategory | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Letters as data, the latest failure first."""
        found = await self._store.find(category=category, limit=limit, offset=offset)
        return [letter.item().to_dict() for letter in found]

    async def get_stats(self) -> DLQStats:
        """How many letters there are, and what was done with all there ever were."""
        counts, figures = await self._store.counts(), await self._store.figures()
        by_category: Counter[str] = Counter()
        for (category, _), number in counts.items():
            by_category[category] += number
        return DLQStats(
            total_items=by_category.total(),
            by_category=dict(by_category),
            retried_count=figures.get("retried", 0),
            archived_count=figures.get("archived", 0),
            deleted_count=figures.get("deleted", 0),
            permanent_failures=figures.get("permanent", 0),
            succeeded_count=figures.get("succeeded", 0),
        )

    # --- one look -------------------------------------------------------------------------------

    async def check(self) -> None:
        """One look: collect, see how retries went, try again what is due, tell of the rest."""
        await self.collect()
        await self._settle()
        if self._automatic:
            await self._retry_due()
        await self._notify()
        await self._recount()

    async def collect(self) -> int:
        """Read what the sources hold; how many failures were news."""
        everything = clock.monotonic() >= self._reread_at
        news = 0
        for source in self._sources.values():
            try:
                news += await self._read(source, everything=everything)
            except Exception as error:  # noqa: BLE001 - a broker that is down keeps none of the others back
                self._problems[source.name] = f"{type(error).__name__}: {error}"
                logger.warning("dead letters not read", source=source.name, error=str(error))
            else:
                self._problems.pop(source.name, None)
        if everything:
            self._reread_at = clock.monotonic() + _REREAD_SECONDS
        return news

    async def _run(self, stopping: anyio.Event) -> None:
        while not stopping.is_set():
            await self.check()
            await pause(stopping, self.check_interval)

    async def _read(self, source: LetterSource, *, everything: bool) -> int:
        news, offset = 0, 0
        there: set[str] = set()
        while True:
            page = await source.failures(_PAGE, offset)
            there.update(letter.message_id for letter in page)
            fresh = 0
            for letter in page:
                fresh += await self._record(_failure(source.name, letter, self._classifier))
            news, offset = news + fresh, offset + len(page)
            # Latest first: behind a page without news there is none.
            if len(page) < _PAGE or not (fresh or everything):
                break
        if everything:
            await self._forget_gone(source, there)
        return news

    async def _record(self, failure: Failure) -> bool:
        key = failure.source, failure.id
        if self._seen.get(key) == failure.failed_at:
            return False
        changed = False

        def change(old: Letter | None) -> Letter | None:
            nonlocal changed
            new = failed(old, failure, self._rule)
            changed = new is not old
            return new

        await self._store.change(*key, change)
        self._seen[key] = failure.failed_at
        self._seen.move_to_end(key)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return changed

    async def _forget_gone(self, source: LetterSource, there: set[str]) -> None:
        """Drop what waits here and was sent or dropped at its source by somebody else."""
        if source.name == ADDED:
            return
        async for letter in self._each(source=source.name, states=(LetterState.WAITING,)):
            if letter.id not in there and not await source.holds(letter.id):
                await self._forget(letter, "gone")

    async def _settle(self) -> None:
        """See how those fared that were sent again."""
        async for letter in self._each(states=(LetterState.RETRYING,)):
            source = self._sources.get(letter.source)
            if source is None:
                continue
            try:
                await self._settled(source, letter)
            except Exception as error:  # noqa: BLE001 - one that cannot be asked for keeps none back
                logger.warning("outcome not known", letter=letter.id, error=str(error))

    async def _settled(self, source: LetterSource, letter: Letter) -> None:
        outcome = await source.outcome(letter)
        age = clock.timestamp() - (letter.retried_at or 0.0)
        if outcome.kind is OutcomeKind.SUCCEEDED:
            await self._forget(letter, "succeeded")
        elif outcome.kind is OutcomeKind.FAILED:
            news = await self._record(self._again(letter, outcome))
            if not news and age > _SEND_GRACE_SECONDS:
                await self._take_back(letter, None)
        elif outcome.kind is OutcomeKind.UNKNOWN:
            if await source.holds(letter.id):
                if age > _SEND_GRACE_SECONDS:  # marked, and whoever did it died before sending
                    await self._take_back(letter, None)
            elif age >= self._confirm:
                await self._forget(letter, "succeeded")

    async def _retry_due(self) -> None:
        now = clock.timestamp()
        async for letter in self._each(states=(LetterState.WAITING,), due_before=now):
            await self._sent_again(letter, by_hand=False)

    async def _sent_again(self, letter: Letter, *, by_hand: bool) -> bool:
        """Mark first, then send: two that want the same letter do not both send it."""
        source = self._sources.get(letter.source)
        if source is None:
            return False
        now = clock.timestamp()
        marked = await self._claimed(
            letter,
            lambda old: (
                sent(old, now)
                if old.state is not LetterState.RETRYING and (by_hand or old.is_due(now))
                else old
            ),
        )
        if marked is None:
            return False
        try:
            there = await source.resend(marked)
        except Exception as error:
            await self._take_back(marked, f"{type(error).__name__}: {error}")
            if by_hand:
                raise
            logger.warning("dead letter not sent again", letter=letter.id, error=str(error))
            return False
        await self._store.add_figure("retried")
        if not there:
            await self._forget(marked, "gone")
        logger.info(
            "dead letter sent again", letter=letter.id, source=letter.source, n=marked.retry_count
        )
        return there

    async def _notify(self) -> None:
        """Tell of letters that became final; each notifier hears of each letter once."""
        async for letter in self._each(states=(LetterState.WAITING,), untold=True):
            # Marked before it is told: a second process, or this one after a crash, stays silent.
            claimed = await self._claimed(
                letter,
                lambda old: evolve(old, notified=True) if old.is_untold else old,
            )
            if claimed is not None:
                await self._tell(claimed)

    async def _tell(self, letter: Letter) -> None:
        told = set(letter.notes.get(TOLD, []))
        if not told:
            await self._store.add_figure("permanent")
        for notifier in self._notifiers:
            if notifier.name in told:
                continue
            try:
                await notifier.notify(letter.item())
            except Exception as error:  # noqa: BLE001 - the boundary to the user's notifier
                logger.warning(
                    "not notified; next try at the next look",
                    notifier=notifier.name,
                    letter=letter.id,
                    error=str(error),
                )
            else:
                told.add(notifier.name)
        done = all(notifier.name in told for notifier in self._notifiers)
        await self._claimed(
            letter,
            lambda old: evolve(old, notified=done, notes={**old.notes, TOLD: sorted(told)}),
        )

    # --- letters --------------------------------------------------------------------------------

    async def _found(self, letter_id: str, source: str | None) -> Letter | None:
        found = await self._store.find(letter_id=letter_id, source=source, limit=1)
        return found[0] if found else None

    async def _each(self, **wanted: Any) -> AsyncIterator[Letter]:
        """Letters page by page; ones that leave meanwhile do not make it miss others."""
        seen: set[tuple[str, str]] = set()
        while True:
            page = await self._store.find(**wanted, limit=_PAGE + len(seen))
            fresh = [each for each in page if (each.source, each.id) not in seen]
            if not fresh:
                return
            for letter in fresh:
                seen.add((letter.source, letter.id))
                yield letter

    async def _claimed(self, letter: Letter, change: Callable[[Letter], Letter]) -> Letter | None:
        """Change a letter that is still there; None when it is not, or the change was none."""
        changed = False

        def guarded(old: Letter | None) -> Letter | None:
            nonlocal changed
            new = None if old is None else change(old)
            changed = new is not old
            return new

        new = await self._store.change(letter.source, letter.id, guarded)
        return new if changed else None

    async def _take_back(self, letter: Letter, error: str | None) -> None:
        now = clock.timestamp()
        await self._claimed(
            letter,
            lambda old: (
                unsent(old, self._rule, now, error) if old.state is LetterState.RETRYING else old
            ),
        )

    async def _forget(self, letter: Letter, why: str) -> None:
        was_there = False

        def change(old: Letter | None) -> Letter | None:
            nonlocal was_there
            was_there = old is not None
            return None

        await self._store.change(letter.source, letter.id, change)
        self._seen.pop((letter.source, letter.id), None)
        if was_there:
            await self._store.add_figure(why)
            if why == "succeeded":
                logger.info("a dead letter succeeded", letter=letter.id, source=letter.source)

    def _again(self, letter: Letter, outcome: Outcome) -> Failure:
        return Failure(
            source=letter.source,
            id=letter.id,
            payload=letter.payload,
            error=outcome.error or letter.last_error,
            category=self._classifier.classify(outcome.error or letter.last_error, letter.payload),
            failed_at=outcome.failed_at,
        )

    async def _recount(self) -> None:
        counts = await self._store.counts()
        self.dead_letter_count = sum(
            number for (_, state), number in counts.items() if state != LetterState.ARCHIVED
        )


def _failure(source: str, letter: DeadLetter, classifier: ClassifierProtocol) -> Failure:
    error = str(letter.metadata.get("error") or letter.reason)
    payload: Any = letter.payload
    facts: Mapping[str, Any] = (
        cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else {}
    )
    notes = {
        key: letter.metadata[key]
        for key in ("topic", "group", "backend")
        if isinstance(letter.metadata.get(key), str)
    }
    return Failure(
        source=source,
        id=letter.message_id,
        payload=_plain(payload),
        error=error,
        category=classifier.classify(error, {**facts, "reason": letter.reason}),
        failed_at=letter.failed_at.timestamp(),
        notes={**notes, "reason": letter.reason, "attempts": letter.attempts},
    )


def _plain(payload: Any) -> Any:
    """To look at only: the letter itself stays at its source, whatever it holds."""
    from lexigram.serialization import SerializationError, dumps

    try:
        dumps(payload)
    except SerializationError:
        return repr(payload)
    return payload
