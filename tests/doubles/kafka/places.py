"""Drivers for the tests of Kafka: on the double, or on real brokers with LEX_TEST_KAFKA."""

import os
from uuid import uuid4

from tests.doubles.kafka.server import REAL
from tests.queue_drivers import make

from lexigram.queue.backends.kafka import KafkaDriver
from lexigram.queue.config import KafkaDriverConfig

# Real brokers refuse sessions below six seconds. The double refuses commits for the length of a
# session and more when members come and go: a call must wait longer than that.
SETTINGS = {"session_timeout": 6.0 if REAL else 3.0, "timeout": 15.0, "rebalance_timeout": 0.5}


def place_name():
    return f"t{os.getpid()}-{uuid4().hex[:8]}"


def driver_on(servers, group_id, **more):
    return make(
        KafkaDriver,
        KafkaDriverConfig,
        bootstrap_servers=servers,
        group_id=group_id,
        **{**SETTINGS, **more},
    )
