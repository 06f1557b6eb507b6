"""Retry a failed embedding job, then run a maintenance task."""

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
    """Retry a batch of notes that failed because the model was unavailable."""
    async with create() as app:
        worker = app.container.get(BatchEmbeddingWorker)
        dead_letters = app.container.get(DeadLetterQueueWorker)
        job = "last-night"
        await dead_letters.add_failed_job(
            {
                "id": job,
                "name": "batch_embed",
                "queue": "ai.batch_embedding",
                "kwargs": {"chunks": NOTES, "collection_name": "notes"},
            },
            ConnectionError("the model is unavailable"),
        )
        [item] = await dead_letters.get_items()
        print(item["failure_category"], "-", item["last_error"])
        model = app.container.get(EmbeddingProviderProtocol)
        assert isinstance(model, Flaky)
        model.available = True
        await anyio.sleep(0.2)  # until the retry is due
        await dead_letters.check()  # the worker would check within a second
        queue = worker.queue
        assert isinstance(queue, JobControlProtocol)
        await queue.wait(job)
        result = await worker.get_result(job)
        assert result is not None
        print("recovered:", result.embeddings_generated, "vectors")
        await dead_letters.check()
        print("dead letters left:", dead_letters.dead_letter_count)
        maintenance = app.container.get(MaintenanceWorker)
        done = await maintenance.run_task_now("metrics_rollup")
        print("counted:", done.metadata["added"]["jobs.batch_embed.completed"], "job")


anyio.run(main)
