"""A process that runs sagas, a bulk operation or a state machine, to be killed.

``saga_worker.py <url> <saga|undo> <first|again> <id>…`` and ``saga_worker.py <url> bulk <how> <id>``.
Every action and compensation writes a row of its own before it returns. In a first run it says
after each stored step what is done and waits for a line on its input.
"""

import asyncio
import sys

from lexigram.contracts.core.result import Err, Ok
from lexigram.sql import Database, SqlConfig
from lexigram.workflow.bulk import BulkOperation, BulkOperationConfig, SqlBulkCheckpoints
from lexigram.workflow.saga import AbstractSaga, SagaStep, SqlSagaStore

STEPS = 6
ITEMS = 1000
BATCH = 20


class Order(AbstractSaga):
    """Six steps; with ``fails`` the last one does, so that the others are undone."""

    def __init__(self, saga_id, database, store, *, fails):
        super().__init__(store, lease=600.0)  # longer than the test: a kill does not end it
        self.saga_id = saga_id
        for number in range(STEPS):

            async def act(what, number=number):
                row = {"run": saga_id, "node": f"{what}s{number}"}
                await database.execute_insert("effects", row)
                return Err("no") if fails and what == "+" and number == STEPS - 1 else Ok(None)

            self.add_step(
                SagaStep(
                    f"s{number}",
                    lambda act=act: act("+"),
                    lambda act=act: act("-"),
                    max_retries=0,
                )
            )

    def get_id(self):
        return self.saga_id


class Told(SqlSagaStore):
    """Says after each write what is stored, and waits to be told to go on: a place to be killed."""

    def __init__(self, database, pause):
        super().__init__(database)
        self.pause = pause

    async def save_owned(self, saga_id, state, data, owner, lease):
        await super().save_owned(saga_id, state, data, owner, lease)
        done = [f"+{name}" for name in data["done"]] + [f"-{name}" for name in data["undone"]]
        await self.pause(",".join(done) or "-")


async def sagas(database, kind, how, ids, pause):
    store = Told(database, pause if how == "first" else quiet)
    for saga_id in ids:
        saga = Order(saga_id, database, store, fails=kind == "undo")
        ended = await (saga.execute() if how == "first" else saga.resume(take_over=True))
        print("end", "ok" if ended.is_ok() else ended.unwrap_err().step_name, flush=True)


async def bulk(database, how, operation_id):
    async def process(items):
        for item in items:
            await database.execute_insert("effects", {"run": operation_id, "node": str(item)})
        return items

    config = BulkOperationConfig(batch_size=BATCH, max_concurrency=3)
    operation = BulkOperation(config, process, checkpoint_store=SqlBulkCheckpoints(database))
    # Unless this one runs beside another, that one was killed: nobody waits for its lease.
    run = operation.execute(range(ITEMS), operation_id=operation_id, take_over=how != "beside")
    async for batch in run:
        print(batch.batch_id, flush=True)
    print("end", operation.metrics.processed_items, operation.metrics.skipped_items, flush=True)


async def quiet(_):
    pass


async def main():
    url, kind, how, *ids = sys.argv[1:]

    async def pause(done):
        print(done, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

    async with Database(SqlConfig(url=url)) as database:
        if kind == "bulk":
            await bulk(database, how, ids[0])
        else:
            await sagas(database, kind, how, ids, pause)


if __name__ == "__main__":
    asyncio.run(main())
