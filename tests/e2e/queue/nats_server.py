"""A NATS server of a test's own, that it may kill, restart and give users to."""

import pytest
from tests.servers import NatsServer, nats_binary

from lexigram.testing.services import do_without


@pytest.fixture
def nats_server(tmp_path):
    """Makes servers: ``nats_server(config="…")``; all are gone afterwards."""
    if nats_binary() is None:
        do_without("nats-server is not installed here, so the test cannot start its own server")
    made = []

    def start(config=""):
        folder = tmp_path / f"nats{len(made)}"
        folder.mkdir()
        made.append(NatsServer(folder, config))
        return made[-1].start()

    yield start
    for server in made:
        server.stop()
