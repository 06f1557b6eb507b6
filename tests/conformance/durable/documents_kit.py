"""What the suites of documents, artifacts and submission share: a fleet on a database and blobs."""

from collections import Counter

from lexigram.contracts.workflow.durable import ArtifactType, RunDocument
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog
from lexigram.workflow.durable.definitions.model import (
    ParameterSet,
    StepDefinition,
    WorkflowDefinition,
)
from lexigram.workflow.durable.definitions.registry import DefinitionRegistry
from lexigram.workflow.durable.documents.artifacts import Artifacts
from lexigram.workflow.durable.documents.documents import Documents
from lexigram.workflow.durable.documents.runs import DurableRuns
from lexigram.workflow.durable.engine import DurableEngine
from lexigram.workflow.durable.worker import Worker, WorkerConfig

TABLES = (
    "lexigram_durable_batch_documents",
    "lexigram_durable_uri_history",
    "lexigram_durable_document_uris",
    "lexigram_durable_documents",
    "lexigram_durable_batches",
)


def document(uri="a.txt", content=b"alpha", source="folder", **more):
    return RunDocument(uri=uri, source=source, content=content, **more)


class Fleet:
    """All parts of durable runs, with handlers that count their calls."""

    def __init__(self, database, blobs):
        self.calls = Counter()
        self.database = database
        self.engine = DurableEngine(database)
        self.artifacts = Artifacts(blobs)
        self.documents = Documents(database, self.artifacts, self.engine)
        self.handlers = HandlerCatalog(
            {"parse": self._parse, "chunk": self._chunk, "fail": self._fail}
        )
        self.registry = DefinitionRegistry(
            self.handlers, packages=(), default_workflow_id="batch", default_param_id="none"
        )
        steps = [_step("parse"), _step("chunk")]
        self.registry.register(WorkflowDefinition(id="batch", name="Batch", steps=steps))
        failing = [_step("parse"), _step("fail", retries=2)]
        self.registry.register(WorkflowDefinition(id="failing", name="F", steps=failing))
        for size in (1, 2):
            self.registry.register(ParameterSet(id=f"size{size}", config={"chunk": {"size": size}}))
        self.runs = DurableRuns(
            self.engine, self.registry, self.documents, make_worker=self._worker
        )

    def _worker(self, consumers):
        return Worker(
            WorkerConfig(consumers=consumers or {"*": 4}, poll_interval=0.05),
            self.engine,
            self.handlers,
            documents=self.documents.load,
            artifacts=self.artifacts,
            upkeep=self.documents.sweep,
        )

    async def worked(self, group_id):
        """Work until the group is final; its figures."""
        async with self.runs.working():
            async for stats in self.runs.watch(group_id):
                last = stats
        return last

    async def _parse(self, doc, ctx):
        self.calls["parse"] += 1
        text = await ctx.artifact(ArtifactType.DOC).read()
        await ctx.artifact(ArtifactType.PARSED_MD).write(b"# " + text)
        await ctx.artifact(ArtifactType.PARSED_JSON).write(b"{}")
        return {"uri": doc.uri, "metadata": dict(doc.metadata)}

    async def _chunk(self, ctx, size: int = 3):
        self.calls[f"chunk {size}"] += 1
        text = await ctx.artifact(ArtifactType.PARSED_MD).read()
        await ctx.artifact(ArtifactType.CHUNKS).write(text[:size])

    async def _fail(self, doc):
        raise RuntimeError(f"no room for {doc.uri}")


def _step(kind, **more):
    return StepDefinition(key=kind, name=f"{kind} it", step_type=kind, method=kind, **more)
