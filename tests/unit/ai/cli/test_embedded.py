"""The application behind `lexigram ingest` in a folder without one."""

import anyio

from lexigram.ai.workers.batch_embedding import BatchEmbeddingWorker
from lexigram.ai.workers.cli.embedded import create_embedded_application
from lexigram.ai.workers.maintenance.worker import MaintenanceWorker
from lexigram.ai.workers.supervision import Supervisor
from lexigram.ai.workers.vectors.choose import VectorStores
from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.workflow.durable import DurableRunsProtocol


def test_it_has_what_runs_need_and_no_workers(tmp_path):
    application = create_embedded_application(tmp_path / "data")
    container = anyio.run(application.register)
    needed = (VectorStores, EmbeddingProviderProtocol, DurableRunsProtocol)
    assert all(container.sees(service) for service in needed)
    workers = (Supervisor, BatchEmbeddingWorker, MaintenanceWorker)
    assert not any(container.sees(service) for service in workers)
