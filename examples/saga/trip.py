"""The saga: book a flight, a hotel and a car, or none of them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexigram.contracts.core.result import Err, Ok, Result
from lexigram.contracts.workflow import SagaStoreProtocol
from lexigram.workflow.saga import AbstractSaga, saga_step

DATABASE = Path("trips.db")


class Trip(AbstractSaga[Any]):
    def __init__(self, city: str, store: SagaStoreProtocol, *, dies: bool = False) -> None:
        super().__init__(store, lease=5.0)
        self.city = city
        self.dies = dies
        self.booking = ""

    def get_id(self) -> str:
        return f"trip-{self.city}"

    def snapshot(self) -> Mapping[str, Any]:
        return {"booking": self.booking}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.booking = snapshot.get("booking", "")

    @saga_step(compensation="cancel_flight")
    async def flight(self) -> Result[None, str]:
        self.booking = f"{self.city[:3].upper()}-12A"
        print("flight", self.booking)
        return Ok(None)

    async def cancel_flight(self) -> None:
        print("cancel flight", self.booking)

    @saga_step(compensation="cancel_hotel")
    async def hotel(self) -> Result[None, str]:
        if self.dies:
            os.abort()  # what a power cut does: nothing after this line runs
        print("hotel in", self.city)
        return Ok(None)

    async def cancel_hotel(self) -> None:
        print("cancel hotel in", self.city)

    @saga_step(max_retries=0)
    async def car(self) -> Result[None, str]:
        if self.city == "atlantis":
            return Err("no car is left")
        print("car in", self.city)
        return Ok(None)
