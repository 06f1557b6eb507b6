"""Hand in, fail, recover, maintain."""

import anyio

from examples.ai_workers.app import Flaky, create
from lexigram.ai.workers import (
    BatchEmbeddingWorker,
    DeadLetterQueueWorker,
    MaintenanceWorker,
)
from lexigram.contracts.ai import EmbeddingProviderProtocol
from lexigram.contracts.infra.tasks import JobControlProtocol

NOTES = ["water the plants", "call the plumber", "return the book"]


async def main() -> None:
    """A batch of notes that failed while its model was away."""
    async with create() as app:
        worker = app.container.get(BatchEmbeddingWorker)
        letters = app.container.get(DeadLetterQueueWorker)
        job = "last-night"
        await letters.add_failed_job(
            {
                "id": job,
                "name": "batch_embed",
                "queue": "ai.batch_embedding",
                "kwargs": {"chunks": NOTES, "collection_name": "notes"},
            },
            ConnectionError("the model is away"),
        )
        [item] = await letters.get_items()
        print(item["failure_category"], "-", item["last_error"])
        model = app.container.get(EmbeddingProviderProtocol)
        assert isinstance(model, Flaky)
        model.away = False
        await anyio.sleep(0.2)  # its time has come
        await letters.check()  # it would look by itself within a second
        queue = worker.queue
        assert isinstance(queue, JobControlProtocol)
        await queue.wait(job)
        result = await worker.get_result(job)
        assert result is not None
        print("recovered:", result.embeddings_generated, "vectors")
        await letters.check()
        print("dead letters left:", letters.dead_letter_count)
        upkeep = app.container.get(MaintenanceWorker)
        done = await upkeep.run_task_now("metrics_rollup")
        print("rolled up:", done.metadata["added"]["jobs.batch_embed.completed"], "job")


anyio.run(main)
