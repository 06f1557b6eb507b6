"""``python -m examples.saga book CITY``, ``crash CITY``, ``recover``."""

import sys

import anyio

from examples.saga.trip import DATABASE, Trip
from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.saga import SqlSagaStore


async def main(command: str, *cities: str) -> None:
    async with Database(f"sqlite:///{DATABASE}") as database:
        await upgrade(database)
        store = SqlSagaStore(database)
        if command == "recover":
            await recover(store)
            return
        trip = Trip(cities[0], store, dies=command == "crash")
        print(_outcome(trip, await trip.execute()))


async def recover(store: SqlSagaStore) -> None:
    """Finish abandoned sagas; a killed process keeps its saga until its lease expires."""
    while not (found := await store.unfinished()):  # noqa: ASYNC110 - another process ends it
        await anyio.sleep(0.2)
    for saga in found:
        trip = Trip(saga.saga_id.removeprefix("trip-"), store)
        print(_outcome(trip, await trip.resume()))


def _outcome(trip: Trip, ended: object) -> str:
    return f"{trip.get_id()} {trip.state.value}: {ended}"


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
