"""Many messages of one tenant do not hold up those of another."""

from __future__ import annotations

from lexigram.contracts.queue import Capability
from lexigram.contracts.queue.headers import FAIRNESS_KEY
from lexigram.testing.conformance.queue.driver.spec import Driver, DriverSpec, message, take


class FairnessSpec(DriverSpec, capability=Capability.FAIRNESS):
    """The header fairness-key."""

    async def test_a_late_tenant_does_not_wait_for_all_of_an_early_one(
        self, subject: Driver, topic: str
    ) -> None:
        await subject.declare(topic, "g")
        # Keys may share a lane (said in the driver's docs): several late ones, most of them free.
        late = [f"late-{number}" for number in range(8)]
        await subject.publish_many(
            [message(topic, b"early", headers={FAIRNESS_KEY: "early"}) for _ in range(200)]
        )
        await subject.publish_many(
            [message(topic, b"late", headers={FAIRNESS_KEY: key}) for key in late]
        )
        held = await take(subject, topic, "g", 40)
        served = {item.message.headers[FAIRNESS_KEY] for item in held} - {"early"}
        assert len(served) >= len(late) // 2, f"only {sorted(served)} among the first 40"
