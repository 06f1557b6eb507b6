"""A saga whose stages are remembered by the content of their inputs: equal work is done once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from attrs import field, frozen

from lexigram import clock
from lexigram.concurrency import call
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.core.result import Result
from lexigram.contracts.data.blobs import BlobStoreProtocol
from lexigram.contracts.workflow.content_checkpoint import (
    ContentCheckpointEntry,
    ContentCheckpointKey,
    ContentCheckpointStoreProtocol,
    canonical_json_bytes,
)
from lexigram.contracts.workflow.protocols import SagaStoreProtocol
from lexigram.contracts.workflow.types import SagaStep
from lexigram.workflow._results import is_err, is_ok
from lexigram.workflow.saga.base import AbstractSaga
from lexigram.workflow.saga.errors import SagaDefinitionError, SagaStepError

INLINE_THRESHOLD_BYTES = 1_048_576


@frozen
class ContentAddressedStage:
    """One stage: a handler of JSON-ready inputs, with what else decides its output."""

    stage_id: str
    # gets the inputs; returns the output or a Result of it, JSON-ready
    handler: Callable[[Mapping[str, Any]], Awaitable[Any]]
    # change it with the handler: outputs of another version are not used
    handler_version: str
    config_affecting_output: Mapping[str, Any] = field(factory=dict[str, Any])
    compensation: Callable[[], Awaitable[Any]] | None = None
    # inputs and earlier stages that the handler gets; None: all of them
    reads: tuple[str, ...] | None = None
    max_retries: int = 1
    retry_delay: float = 1.0
    idempotent: bool = True
    timeout: float | None = None


class ContentAddressedSaga(AbstractSaga[Any]):
    """Stages in a row, each given the inputs of the saga and the outputs of the stages before.

    A stage whose inputs, handler version and settings were seen before is not run: its output
    comes from the checkpoint store. Undoing a stage forgets its output. Outputs above
    ``inline_threshold_bytes`` go to the blob store when there is one.
    """

    def __init__(
        self,
        saga_id: str,
        checkpoint_store: ContentCheckpointStoreProtocol,
        *,
        store: SagaStoreProtocol | None = None,
        blob_store: BlobStoreProtocol | None = None,
        tenant_id: str | None = None,
        inline_threshold_bytes: int = INLINE_THRESHOLD_BYTES,
        **settings: Any,
    ) -> None:
        super().__init__(store, **settings)
        self._id = saga_id
        self._checkpoints = checkpoint_store
        self._blobs = blob_store
        self._tenant_id = tenant_id
        self._threshold = inline_threshold_bytes
        self._stages: dict[str, ContentAddressedStage] = {}
        self._inputs: dict[str, Any] = {}
        # output of each stage that is done, by its id
        self.outputs: dict[str, Any] = {}

    def get_id(self) -> str:
        """The id given."""
        return self._id

    def snapshot(self) -> Mapping[str, Any]:
        """The inputs; outputs are found again by their content."""
        return {"inputs": self._inputs}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The inputs of the process that began."""
        self._inputs = dict(snapshot.get("inputs", {}))

    def add_stage(self, stage: ContentAddressedStage) -> None:
        """Add the next stage. Raises SagaDefinitionError for one that cannot be."""
        unknown = [name for name in stage.reads or () if name == stage.stage_id]
        if unknown:
            raise SagaDefinitionError(f"stage {stage.stage_id!r} cannot read its own output")
        self.add_step(
            SagaStep(
                stage.stage_id,
                partial(self._do, stage),
                partial(self._take_back, stage) if stage.compensation else None,
                max_retries=stage.max_retries,
                retry_delay=stage.retry_delay,
                idempotent=stage.idempotent,
                timeout=stage.timeout,
            )
        )
        self._stages[stage.stage_id] = stage

    async def execute(self, inputs: Mapping[str, Any] | None = None) -> Result[None, LexigramError]:
        """Run the stages on ``inputs``; afterwards ``outputs`` has what each gave.

        A stored saga that was cut off goes on with the inputs it was begun with.
        """
        clash = sorted(set(inputs or ()) & set(self._stages))
        if clash:
            raise SagaDefinitionError(
                f"inputs {clash} have the names of stages", hint="rename the inputs"
            )
        self._inputs = dict(inputs or {})
        ended = await super().execute()
        if ended.is_ok():
            for stage in self._stages.values():  # those that another process did
                await call(self._output, stage)
        return ended

    async def run_stage(self, stage: ContentAddressedStage, inputs: Mapping[str, Any]) -> Any:
        """The output for these inputs: remembered, or made by the handler and then remembered.

        Raises what the handler raises, and SagaStepError when it gave an Err.
        """
        key = self._key(stage, inputs)
        entry = await self._checkpoints.get(key)
        if entry is not None:
            return await self._read(stage, entry)
        data = canonical_json_bytes(_output(stage, await stage.handler(inputs)))
        # As it will be read: a tuple that is a list the next time is a list this time too.
        output = json.loads(data)
        await self._checkpoints.set(key, await self._entry(stage, key, output, data))
        return output

    def _key(self, stage: ContentAddressedStage, inputs: Mapping[str, Any]) -> ContentCheckpointKey:
        return ContentCheckpointKey.compute(
            *(stage.stage_id, self._tenant_id, dict(inputs), stage.handler_version),
            stage.config_affecting_output,
        )

    async def _do(self, stage: ContentAddressedStage) -> Any:
        inputs = await self._inputs_of(stage)
        self.outputs[stage.stage_id] = output = await self.run_stage(stage, inputs)
        return output

    async def _take_back(self, stage: ContentAddressedStage) -> Any:
        assert stage.compensation is not None
        answer: Any = await stage.compensation()
        if not is_err(answer):
            # Else the next saga would take the work for done.
            await self._checkpoints.evict(self._key(stage, await self._inputs_of(stage)))
            self.outputs.pop(stage.stage_id, None)
        return answer

    async def _inputs_of(self, stage: ContentAddressedStage) -> dict[str, Any]:
        names = list(self._stages)
        earlier = names[: names.index(stage.stage_id)]
        known = {*self._inputs, *earlier}
        wanted = known if stage.reads is None else set(stage.reads)
        if missing := sorted(wanted - known):
            raise SagaDefinitionError(
                f"stage {stage.stage_id!r} reads {missing}, which are neither inputs nor "
                "earlier stages"
            )
        outputs = {n: await self._output(self._stages[n]) for n in earlier if n in wanted}
        return {n: value for n, value in self._inputs.items() if n in wanted} | outputs

    async def _output(self, stage: ContentAddressedStage) -> Any:
        """The output of an earlier stage, also when another process made it."""
        if stage.stage_id not in self.outputs:
            await self._do(stage)
        return self.outputs[stage.stage_id]

    async def _entry(
        self, stage: ContentAddressedStage, key: ContentCheckpointKey, output: Any, data: bytes
    ) -> ContentCheckpointEntry:
        reference = None
        if self._blobs is not None and len(data) > self._threshold:
            reference = await self._blobs.upload(
                path=_path(key), data=data, content_type="application/json"
            )
        return ContentCheckpointEntry(
            output=None if reference else output,
            output_blob_ref=reference,
            completed_at=clock.now(),
            stage_handler_version=stage.handler_version,
            output_size_bytes=len(data),
        )

    async def _read(self, stage: ContentAddressedStage, entry: ContentCheckpointEntry) -> Any:
        if entry.output_blob_ref is None:
            return entry.output
        if self._blobs is None:
            raise RuntimeError(
                f"the output of stage {stage.stage_id!r} is the blob {entry.output_blob_ref!r}, "
                "but this saga has no blob_store"
            )
        return json.loads(await self._blobs.download(entry.output_blob_ref))


def _output(stage: ContentAddressedStage, answer: Any) -> Any:
    if is_err(answer):
        if isinstance(answer.error, Exception):
            raise answer.error
        raise SagaStepError(str(answer.error), stage.stage_id)
    return answer.value if is_ok(answer) else answer


def _path(key: ContentCheckpointKey) -> str:
    """One blob per key: inputs, handler version and settings are all part of the path."""
    parts = (quote(key.stage_id, safe=""), quote(key.tenant_id or "_global", safe=""))
    return f"checkpoints/{parts[0]}/{parts[1]}/{key.input_hash.hex()}-{key.config_hash.hex()}.json"
