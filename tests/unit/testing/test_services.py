import socket

import pytest

from lexigram.testing import services
from lexigram.testing.services import KNOWN_SERVICES, Service, configured_services, free_port


def test_a_service_answers_where_something_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        service = Service(name="x", title="X", port=port)
        assert service.answers()
        assert service.address == f"127.0.0.1:{port}"
    assert not service.answers()


def test_a_host_that_does_not_exist_does_not_answer():
    assert not Service(name="x", title="X", host="no-such-host.invalid", port=1).answers()


def test_the_four_servers_of_the_house_are_known():
    assert {name: service.port for name, service in KNOWN_SERVICES.items()} == {
        "postgresql": 5432,
        "redis": 6379,
        "rabbitmq": 5672,
        "nats": 4222,
    }


def test_lines_move_known_services_and_add_others():
    services = configured_services(["redis = db.test:7000", "mine=[::1]:99"])
    assert services["redis"] == Service(name="redis", title="Redis", host="db.test", port=7000)
    assert services["mine"] == Service(name="mine", title="mine", host="::1", port=99)
    assert services["nats"] == KNOWN_SERVICES["nats"]


@pytest.mark.parametrize("line", ["redis", "redis = 6379", "= a:1", "redis = a:b", "redis = :1"])
def test_a_line_of_another_form_is_refused(line):
    with pytest.raises(ValueError, match="is not of the form name = host:port"):
        configured_services([line])


def test_a_free_port_is_not_taken_and_none_that_connections_are_given(monkeypatch):
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken = server.getsockname()[1]
        other = free_port()
        answers = iter([taken, taken, other])
        monkeypatch.setattr(services.secrets, "choice", lambda _: next(answers))
        assert free_port() == other
    assert {taken, other} <= set(range(1024, 32768))


def test_where_no_port_is_free_that_is_said(monkeypatch):
    with socket.create_server(("127.0.0.1", free_port())) as server:
        monkeypatch.setattr(services.secrets, "choice", lambda _: server.getsockname()[1])
        with pytest.raises(OSError, match="none of 1000 ports from 10000 to 32000 is free"):
            free_port()
