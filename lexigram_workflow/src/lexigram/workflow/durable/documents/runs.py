"""Submit documents to the fleet and follow them: the interface for applications."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import orjson
from attrs import frozen

from lexigram.contracts.workflow.durable import (
    ArtifactType,
    RunDocument,
    RunFailure,
    RunGroupStats,
)
from lexigram.contracts.workflow.limits import (
    check_id,
    check_name,
    check_optional_names,
    check_priority,
    check_seconds,
)
from lexigram.observability import get_logger
from lexigram.workflow.durable.definitions.model import Overrides
from lexigram.workflow.durable.definitions.registry import DefinitionRegistry
from lexigram.workflow.durable.documents.artifacts import MADE_BY, Artifacts
from lexigram.workflow.durable.documents.documents import Documents, Prepared
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.errors import (
    DocumentNotFoundError,
    PlanInvalidError,
)
from lexigram.workflow.durable.following import Following, MakeWorker
from lexigram.workflow.durable.plan import NewRun, RunPlan
from lexigram.workflow.durable.store.documents import BlobsGone, NewDocument
from lexigram.workflow.durable.store.records import CHANNEL, Row

logger = get_logger(__name__)

_TRIES = 3  # when another process removes the same content meanwhile
_AT_ONCE = 16  # blobs that are looked for at the same time


@frozen(kw_only=True)
class Started:
    """Runs that were started for a batch or a document."""

    # the new group; the one of the runs that were there, when none is new
    group_id: int | None
    # the new runs
    runs: int
    # documents that have such a run already, or were left out as asked
    skipped: int
    # the group is that of an earlier call with the same idempotency key
    is_repeat: bool = False


class DurableRuns:
    """Implements ``DurableRunsProtocol`` on an engine, its definitions and its documents."""

    def __init__(
        self,
        engine: DurableEngine,
        registry: DefinitionRegistry,
        documents: Documents,
        *,
        make_worker: MakeWorker,
        stop_timeout: float = 30.0,
    ) -> None:
        self.engine = engine
        self.registry = registry
        self.documents = documents
        self._following = Following(engine, make_worker=make_worker, stop_timeout=stop_timeout)

    # --- in -------------------------------------------------------------------------------------

    async def submit(
        self,
        documents: Sequence[RunDocument],
        *,
        workflow_id: str | None = None,
        param_id: str | None = None,
        overrides: Overrides | None = None,
        name: str | None = None,
        priority: int = 0,
        tenant_id: str | None = None,
        delay: float = 0.0,
        idempotency_key: str | None = None,
        force: bool = False,
    ) -> int:
        """Store documents and runs in one transaction; the id of the group.

        All is checked before anything is stored. The documents are a new batch. The first step
        of a run waits for ``delay`` seconds. ``force`` makes steps run although their artifacts
        exist.
        """
        if not documents:
            raise PlanInvalidError("there is nothing to submit", hint="give at least one document")
        _check(priority, tenant_id, delay, idempotency_key, name)
        if idempotency_key is not None:
            known = await self.documents.store.find_group(idempotency_key)
            if known is not None:
                return known
        plan = await self.registry.plan(workflow_id, param_id, overrides)
        prepared = await self.documents.prepare(documents)

        def run(one: NewDocument, batch_id: int) -> NewRun:
            return NewRun(
                doc_id=one.hash,
                batch_id=batch_id,
                priority=priority,
                tenant=tenant_id,
                delay=delay,
                params=_run_params(plan, one.uri, one.source, one.hash, batch_id, force),
            )

        for _ in range(_TRIES):
            try:
                group_id = await self.documents.store.run_in_transaction(
                    lambda ready=prepared: self._store(ready, plan, run, name, idempotency_key)  # type: ignore[misc]
                )
            except BlobsGone as gone:
                prepared = await self.documents.upload_again(prepared, gone.hashes)
                continue
            await self._notify()
            return group_id
        raise PlanInvalidError("documents are removed as fast as they are stored")

    async def _store(
        self,
        prepared: Prepared,
        plan: RunPlan,
        run: Callable[[NewDocument, int], NewRun],
        name: str | None,
        key: str | None,
    ) -> int:
        """In a transaction: the batch, its documents and its runs."""
        sources = sorted({one.source for one in prepared.documents})
        source = sources[0] if len(sources) == 1 else "various"
        batch_id = await self.documents.create_batch(source, name)
        await self.documents.store.add(prepared.documents, batch_id, prepared.uploaded)
        runs = [run(one, batch_id) for one in prepared.documents]
        submitted = await self.engine.submit(plan, runs, name=name, idempotency_key=key)
        if not submitted.is_new:  # another submission with the key was faster
            await self.documents.store.drop_batch(batch_id)
        return submitted.group_id

    async def plan_key(
        self,
        *,
        workflow_id: str | None = None,
        param_id: str | None = None,
        overrides: Overrides | None = None,
    ) -> str:
        """A key for the work that ``submit`` would start for each document."""
        plan = await self.registry.plan(workflow_id, param_id, overrides)
        return self.documents.artifacts.config_keys(plan)[-1]

    async def forget(self, uri: str, source: str) -> bool:
        """Remove a document that its source has no more; False when there is none."""
        try:
            await self.documents.delete_uri(uri, source)
        except DocumentNotFoundError:
            return False
        return True

    async def start_batch(
        self,
        batch_id: int,
        *,
        workflow_id: str | None = None,
        param_id: str | None = None,
        overrides: Overrides | None = None,
        priority: int = 0,
        tenant_id: str | None = None,
        delay: float = 0.0,
        idempotency_key: str | None = None,
        name: str | None = None,
        only_unparsed: bool = False,
        skip_existing: bool = False,
        again: bool = False,
        force: bool = False,
    ) -> Started:
        """One run for each document of a batch that has none yet with this workflow and set.

        ``again`` makes a second one. ``only_unparsed`` leaves out documents whose parsed form
        exists, ``skip_existing`` those that any batch completed. A second call with the
        ``idempotency_key`` finds the group of the first and starts nothing. Raises
        DocumentNotFoundError for an unknown batch.
        """
        check_id("batch_id", batch_id)
        _check(priority, tenant_id, delay, idempotency_key, name)
        if (known := await self._find_repeat(idempotency_key)) is not None:
            return known
        plan = await self.registry.plan(workflow_id, param_id, overrides)
        await self.documents.batch(batch_id)
        members = await self.documents.store.members(batch_id)
        left_out: set[str] = set()
        if skip_existing:
            hashes = sorted({row["doc_hash"] for row in members})
            left_out |= await self.documents.store.find_completed(
                hashes, plan.workflow_id, plan.param_id
            )
        if only_unparsed:
            left_out |= await self._find_parsed(
                plan, {row["doc_hash"] for row in members} - left_out
            )
        wanted = [row for row in members if row["doc_hash"] not in left_out]
        runs = [
            NewRun(
                doc_id=row["doc_hash"],
                batch_id=batch_id,
                priority=priority,
                tenant=tenant_id,
                delay=delay,
                idempotency_key=None if again else _run_key(plan, overrides, row, batch_id),
                params=_run_params(
                    plan, row["uri"], row["source"], row["doc_hash"], batch_id, force
                ),
            )
            for row in wanted
        ]
        return await self._start(plan, runs, len(members), name, idempotency_key)

    async def start_document(
        self,
        doc_hash: str,
        *,
        workflow_id: str | None = None,
        param_id: str | None = None,
        overrides: Overrides | None = None,
        priority: int = 0,
        tenant_id: str | None = None,
        delay: float = 0.0,
        idempotency_key: str | None = None,
        name: str | None = None,
        again: bool = False,
        force: bool = False,
    ) -> Started:
        """A run for one stored document, in the batch that brought it last.

        A second call with the ``idempotency_key`` finds the group of the first and starts
        nothing. Raises DocumentNotFoundError.
        """
        check_name("doc_hash", doc_hash)
        _check(priority, tenant_id, delay, idempotency_key, name)
        if (known := await self._find_repeat(idempotency_key)) is not None:
            return known
        plan = await self.registry.plan(workflow_id, param_id, overrides)
        uris = await self.documents.store.uris_of(doc_hash)
        if not uris:
            raise DocumentNotFoundError(
                f"there is no document {doc_hash!r}", details={"hash": doc_hash}
            )
        last = max(uris, key=lambda one: (one["updated_at"], one["id"]))
        batch_id = last["batch_id"]
        params = _run_params(plan, last["uri"], last["source"], doc_hash, batch_id, force)
        run = NewRun(
            doc_id=doc_hash,
            batch_id=batch_id,
            priority=priority,
            tenant=tenant_id,
            delay=delay,
            idempotency_key=None if again else _run_key(plan, overrides, last, batch_id),
            params=params,
        )
        return await self._start(plan, [run], 1, name, idempotency_key)

    async def _start(
        self, plan: RunPlan, runs: Sequence[NewRun], asked: int, name: str | None, key: str | None
    ) -> Started:
        if not runs:
            return Started(group_id=None, runs=0, skipped=asked)
        submitted = await self.engine.submit(plan, runs, name=name, idempotency_key=key)
        if not submitted.is_new:
            found = await self._find_repeat(key)  # another call with the key was faster
            return found or Started(group_id=submitted.group_id, runs=0, skipped=asked)
        made = (await self.engine.stats(submitted.group_id)).total_runs
        return Started(group_id=submitted.group_id, runs=made, skipped=asked - made)

    async def _find_repeat(self, key: str | None) -> Started | None:
        """What the first call with the key started; None when there was none."""
        known = None if key is None else await self.documents.store.find_group(key)
        return None if known is None else Started(group_id=known, runs=0, skipped=0, is_repeat=True)

    async def _find_parsed(self, plan: RunPlan, hashes: set[str]) -> set[str]:
        """Those whose parsed form, as this plan makes it, exists."""
        artifacts = self.documents.artifacts
        keys = [
            key
            for step, key in zip(plan.steps, artifacts.config_keys(plan), strict=True)
            if step.step_type == "parse"
        ]
        if not keys:
            return set()
        limit = anyio.CapacityLimiter(_AT_ONCE)
        found: set[str] = set()

        async def look(doc_hash: str) -> None:
            async with limit:
                if await _all_exist(artifacts, MADE_BY["parse"], doc_hash, keys[-1]):
                    found.add(doc_hash)

        async with anyio.create_task_group() as tasks:
            for doc_hash in hashes:
                tasks.start_soon(look, doc_hash)
        return found

    async def _notify(self) -> None:
        """On SQLite the engine notified workers before the transaction had ended."""
        if self.engine.database.dialect == "sqlite":
            await self.engine.database.notify(CHANNEL)

    # --- to follow ------------------------------------------------------------------------------

    async def status(self, group_id: int) -> RunGroupStats:
        """Statistics of the group; raises RunNotFoundError, a LookupError."""
        return await self.engine.stats(group_id)

    def watch(self, group_id: int) -> AsyncIterator[RunGroupStats]:
        """The statistics now and after each change, until the group is final; see Following."""
        return self._following.watch(group_id)

    async def failures(self, group_id: int, *, limit: int = 1000) -> Sequence[RunFailure]:
        """The runs of the group that failed, with their reasons; oldest first."""
        return await self._following.failures(group_id, limit=limit)

    def working(
        self, consumers: Mapping[str, int] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """A worker in this process while the block lasts; None: the configured pools."""
        return self._following.working(consumers)

    async def retry(self, group_id: int, *, hard: bool = False) -> int:
        """Make failed and cancelled runs claimable again and reopen the group; how many runs."""
        return await self.engine.retry(group_id=group_id, hard=hard)

    async def cancel(self, group_id: int, *, reason: str = "") -> int:
        """Cancel what is not final; how many runs."""
        cancelled = await self.engine.cancel(group_id=group_id)
        if cancelled:
            logger.info("runs cancelled", group=group_id, runs=cancelled, reason=reason)
        return cancelled


def _check(
    priority: int, tenant_id: str | None, delay: float, key: str | None, name: str | None
) -> None:
    """Before anything is stored."""
    check_priority("priority", priority)
    check_seconds("delay", delay)
    check_optional_names(tenant_id=tenant_id, idempotency_key=key, name=name)


async def _all_exist(
    artifacts: Artifacts, kinds: Sequence[ArtifactType], doc_hash: str, key: str
) -> bool:
    for kind in kinds:
        if not await artifacts.artifact(kind, doc_hash, key).exists():
            return False
    return True


def _run_params(
    plan: RunPlan, uri: str, source: str, doc_hash: str, batch_id: int | None, force: bool
) -> Mapping[str, Any]:
    """What handlers can ask for by name; ``params.RUN_PARAMS`` lists the same names."""
    params: dict[str, Any] = {
        "workflow_id": plan.workflow_id,
        "param_id": plan.param_id,
        "source": source,
        "uri": uri,
        "batch_id": batch_id,
        "doc_hash": doc_hash,
    }
    return {**params, "force": True} if force else params


def _run_key(plan: RunPlan, overrides: Overrides | None, row: Row, batch_id: int | None) -> str:
    """One run per document, batch, workflow and parameters."""
    facts = [
        *(batch_id, plan.workflow_id, plan.param_id),
        *({k: dict(v) for k, v in (overrides or {}).items()}, row["source"], row["uri"]),
        row["doc_hash"],
    ]
    text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
    return f"document-{hashlib.sha256(text).hexdigest()}"
