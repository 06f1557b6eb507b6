"""Artifacts that steps write for a document: their paths in the blob store, and their existence."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson
from attrs import evolve, field, frozen

from lexigram.contracts.data.blobs import BlobInfo, BlobStoreProtocol
from lexigram.contracts.workflow.durable import ArtifactType
from lexigram.workflow.durable.errors import PlanInvalidError
from lexigram.workflow.durable.models import RunStep, WorkflowRun
from lexigram.workflow.durable.plan import NewRun, RunPlan, StepPlan
from lexigram.workflow.durable.store.records import ITEM, Spawn

# What steps of these types make; others make CUSTOM only.
MADE_BY: Final[Mapping[str, tuple[ArtifactType, ...]]] = {
    "ingest": (ArtifactType.DOC,),
    "parse": (ArtifactType.PARSED_MD, ArtifactType.PARSED_JSON),
    "chunk": (ArtifactType.CHUNKS,),
    "embed": (ArtifactType.EMBEDDINGS,),
    "store": (ArtifactType.RAG,),
}
# A store is written to by others too: its handler looks itself.
_SKIPPABLE: Final = frozenset({"ingest", "parse", "chunk", "embed"})
_PLANS = 1_000  # whose keys are kept in memory


@frozen(kw_only=True)
class ArtifactFolders:
    """Where each kind is, below the root of the blob store."""

    doc: str = "raw"
    parsed_md: str = "markdown"
    parsed_json: str = "json"
    chunks: str = "chunks"
    embeddings: str = "embeddings"
    rag: str = "rag"
    custom: str = "custom"

    def of(self, kind: ArtifactType) -> str:
        """The folder of a kind."""
        folder: str = getattr(self, kind.value)
        return folder

    def __attrs_post_init__(self) -> None:
        names = [self.of(kind) for kind in ArtifactType]
        if len({name.strip("/") for name in names}) < len(names) or not all(names):
            raise PlanInvalidError(
                f"the folders of artifacts must differ and have a name: {', '.join(names)}",
                hint="give each of workflow.durable.*_store_dir a folder of its own",
            )


@frozen
class BlobArtifact:
    """Implements ``ArtifactProtocol``."""

    path: str
    _blobs: BlobStoreProtocol = field(repr=False)

    async def exists(self) -> bool:
        """True when it was written."""
        return await self._blobs.exists(self.path)

    async def read(self) -> bytes:
        """The bytes; raises BlobNotFoundError when it was not written."""
        return await self._blobs.download(self.path)

    async def write(self, data: bytes) -> str:
        """Store the bytes; returns ``path``."""
        return await self._blobs.upload(self.path, data)


class Artifacts:
    """Gives each step its artifacts; a Worker takes it as ``artifacts``.

    Paths are ``raw/{hash}`` for documents and ``{folder}/{config key}/{hash}`` for the rest. The
    config key names the handlers and parameters up to the step: runs that agree so far share
    what was made so far, whatever comes after. Runs that a step made for items of a document
    have ``{hash}~@{item}``: each its own, the same when the document is done again alike.
    """

    def __init__(self, blobs: BlobStoreProtocol, folders: ArtifactFolders | None = None) -> None:
        self.blobs = blobs
        self.folders = folders or ArtifactFolders()
        # by identity: plans cannot be hashed, and workers keep them
        self._keys: dict[int, tuple[RunPlan, Sequence[str]]] = {}

    def of(
        self, run_step: RunStep, workflow_run: WorkflowRun, plan: RunPlan, /
    ) -> BoundArtifacts | None:
        """Those of a step; None for a run without a document."""
        if workflow_run.doc_id is None:
            return None
        return BoundArtifacts(
            self,
            plan,
            run_step.workflow_step_number,
            workflow_run.doc_id,
            item=None if workflow_run.parent_id is None else workflow_run.run_params.get(ITEM),
            is_forced=bool(workflow_run.run_params.get("force")),
        )

    def document(self, doc_hash: str) -> BlobArtifact:
        """The bytes of a document."""
        return BlobArtifact(f"{self.folders.doc}/{doc_hash}", self.blobs)

    def artifact(
        self,
        kind: ArtifactType,
        doc_hash: str,
        config_key: str,
        name: str | None = None,
        item: str | None = None,
    ) -> BlobArtifact:
        """One artifact by the key of the step that makes it, and the item of a run for one."""
        if kind is ArtifactType.DOC:
            return self.document(doc_hash)
        # A name never has an @: it is written as %40.
        suffix = "" if item is None else f"~@{item}"
        suffix += "" if name is None else f"~{quote(name, safe='')}"
        path = f"{self.folders.of(kind)}/{config_key}/{doc_hash}{suffix}"
        return BlobArtifact(path, self.blobs)

    def config_keys(self, plan: RunPlan) -> Sequence[str]:
        """One for each step of the plan."""
        known = self._keys.get(id(plan))
        if known is None:
            if len(self._keys) >= _PLANS:
                self._keys.clear()
            known = self._keys[id(plan)] = (plan, config_keys(plan))
        return known[1]

    async def list(self, doc_hash: str, plans: Sequence[RunPlan]) -> AsyncIterator[BlobInfo]:
        """The stored blobs of a document, its bytes first, that runs of the plans can make."""
        found = await self.blobs.stat(self.document(doc_hash).path)
        if found is not None:
            yield found
        seen: set[str] = set()
        for plan in plans:
            for step, key in zip(plan.steps, self.config_keys(plan), strict=True):
                if key in seen:
                    continue
                seen.add(key)
                kinds = {*MADE_BY.get(step.step_type, ()), ArtifactType.CUSTOM}
                for kind in sorted(kinds - {ArtifactType.DOC}):
                    async for info in self.blobs.list(self.artifact(kind, doc_hash, key).path):
                        if _hash_of(info.path) == doc_hash:
                            yield info

    async def stored(self) -> AsyncIterator[tuple[str, BlobInfo]]:
        """Every blob of every document, with the hash of the document."""
        for kind in ArtifactType:
            async for info in self.blobs.list(f"{self.folders.of(kind)}/"):
                yield _hash_of(info.path), info


class BoundArtifacts:
    """The artifacts of one step of one run."""

    def __init__(
        self,
        artifacts: Artifacts,
        plan: RunPlan,
        step_no: int,
        doc_hash: str,
        *,
        item: str | None,
        is_forced: bool,
    ) -> None:
        self._artifacts = artifacts
        self._plan = plan
        self._step_no = step_no
        self._doc_hash = doc_hash
        self._item = item
        self._is_forced = is_forced

    def artifact(self, kind: ArtifactType, name: str | None = None, /) -> BlobArtifact:
        """The artifact of this step, or of the nearest step before that makes the kind.

        A CUSTOM one of an earlier step is named ``step name/name``.
        """
        number = self._step_no
        if kind is ArtifactType.CUSTOM:
            number, name = self._custom(name)
        elif kind is not ArtifactType.DOC:
            number = self._maker(kind)
        key = self._artifacts.config_keys(self._plan)[number - 1]
        return self._artifacts.artifact(kind, self._doc_hash, key, name, self._item)

    async def complete(self) -> bool:
        """True when all artifacts of the step exist and the run is not forced."""
        step = self._plan.steps[self._step_no - 1]
        if self._is_forced or step.step_type not in _SKIPPABLE:
            return False
        for kind in MADE_BY[step.step_type]:
            if not await self.artifact(kind).exists():
                return False
        return True

    def _maker(self, kind: ArtifactType) -> int:
        for number in range(self._step_no, 0, -1):
            if kind in MADE_BY.get(self._plan.steps[number - 1].step_type, ()):
                return number
        maker = next(name for name, kinds in MADE_BY.items() if kind in kinds)
        raise PlanInvalidError(
            f"no step up to {self._plan.steps[self._step_no - 1].name!r} makes {kind.value}",
            details={"workflow_id": self._plan.workflow_id, "artifact": kind.value},
            hint=f"give the step that makes it `type: {maker}`",
        )

    def _custom(self, name: str | None) -> tuple[int, str | None]:
        step, slash, rest = (name or "").partition("/")
        number = self._plan.number(step) if slash else None
        if number is None or number > self._step_no:
            return self._step_no, name
        return number, rest or None


def config_keys(plan: RunPlan) -> Sequence[str]:
    """For each step, what names the handlers and parameters up to and including it."""
    hasher = hashlib.sha256()
    keys: list[str] = []
    for step in plan.steps:
        hasher.update(_step_bytes(step))
        keys.append(hasher.copy().hexdigest())
    return keys


def with_items(
    spawns: Sequence[Spawn],
    plan: RunPlan,
    step_no: int,
    doc_id: str | None,
    params: Mapping[str, Any],
) -> Sequence[Spawn]:
    """The runs that a step of a run makes, each knowing which item of the document it is for.

    An item is what the run was given, after all that was done before it: the same on every way
    that leads there alike. Runs that were given the same are distinguished by their order.
    """
    if doc_id is None and not any(run.doc_id for spawn in spawns for run in spawn.runs):
        return spawns
    before = [params.get(ITEM), config_keys(plan)[step_no - 1]]
    seen: Counter[str] = Counter()

    def mark(run: NewRun) -> NewRun:
        facts = orjson.dumps([*before, run.doc_id, run.params], option=orjson.OPT_SORT_KEYS)
        item = hashlib.sha256(facts).hexdigest()[:32]
        seen[item] += 1
        item = item if seen[item] == 1 else f"{item}.{seen[item]}"
        return evolve(run, params={**run.params, ITEM: item})

    return [evolve(spawn, runs=[mark(run) for run in spawn.runs]) for spawn in spawns]


def _step_bytes(step: StepPlan) -> bytes:
    # The length keeps two steps from looking like one with the text of both.
    text = orjson.dumps([step.handler, step.params], option=orjson.OPT_SORT_KEYS)
    return b"%d:%s" % (len(text), text)


def _hash_of(path: str) -> str:
    return path.rpartition("/")[2].partition("~")[0]
