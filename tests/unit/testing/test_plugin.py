import socket
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

HEAVY = (
    *("dependency_injector", "cattrs", "orjson", "loguru", "typer", "click", "rich", "yaml"),
    *("attrs", "anyio", "lexigram.app", "lexigram.di", "lexigram.config", "lexigram.events"),
)


@pytest.fixture
def run(pytester):
    """Run a test file in a pytest of its own, in this process."""

    def run(text, *args):
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)

    return run


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_the_plugin_loads_nothing_but_pytest_and_itself():
    code = (
        "import sys, pytest; before = set(sys.modules)\n"
        "import lexigram.testing.plugin\n"
        f"print(*(m for m in {HEAVY!r} if m in set(sys.modules) - before))\n"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('lexigram')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert done == [
        "",
        (
            "lexigram lexigram.contracts lexigram.contracts._lazy lexigram.testing "
            "lexigram.testing.plugin"
        ),
    ]


def test_a_run_that_uses_no_fixture_of_the_kit_loads_nothing_heavy(pytester):
    heavy = [name for name in HEAVY if name not in {"anyio", "attrs"}]  # anyio has a plugin too
    pytester.makepyfile(
        f"""
        import sys

        def test_nothing():
            assert [name for name in {heavy!r} if name in sys.modules] == []
        """
    )
    # Plugins of this repository's own tools (hypothesis) import what they like.
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_the_fakes_are_fixtures(run):
    result = run(
        """
        import pytest
        from lexigram.contracts.core.clock import ClockProtocol
        from lexigram.contracts.events import EventBusProtocol
        from lexigram.contracts.infra.cache import CacheBackendProtocol
        from lexigram.contracts.observability import MetricsProtocol, TracerProtocol

        def test_contracts(fake_clock, fake_event_bus, fake_tracer, fake_metrics, fake_cache):
            assert isinstance(fake_clock, ClockProtocol)
            assert isinstance(fake_event_bus, EventBusProtocol)
            assert isinstance(fake_tracer, TracerProtocol)
            assert isinstance(fake_metrics, MetricsProtocol)
            assert isinstance(fake_cache, CacheBackendProtocol)

        def test_one_clock_for_all(fake_clock, fake_tracer, fake_cache):
            assert fake_tracer.clock is fake_cache.clock is fake_clock

        def test_new_for_each_test(fake_metrics, request):
            fake_metrics.increment("x")

        def test_new_for_each_test_again(fake_metrics):
            assert fake_metrics.measurements == []
        """
    )
    result.assert_outcomes(passed=4)


def test_the_logs_fixture_captures_both_kinds_beside_caplog(run):
    result = run(
        """
        import logging
        from loguru import logger

        level = logging.getLogger().level

        def test_logs(logs, caplog):
            logging.getLogger("a").info("one")
            logger.info("two")
            assert logs.messages == ["one", "two"]
            assert caplog.messages == ["one"]

        def test_after():
            assert logging.getLogger().level == level
            assert not any("testing.logs" in type(h).__module__ for h in logging.getLogger().handlers)
        """
    )
    result.assert_outcomes(passed=2)


def test_a_test_runs_where_its_service_answers(run, pytester):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pytester.makeini(f"[pytest]\nlexigram_services =\n  redis = 127.0.0.1:{port}")
        result = run(
            f"""
            import pytest

            @pytest.mark.service("redis")
            def test_redis(services):
                assert services["redis"].port == {port}
            """,
            "--strict-markers",
        )
    result.assert_outcomes(passed=1)


SERVICE_TEST = """
    import pytest

    @pytest.fixture
    def connection():
        raise ConnectionError("a fixture ran although there is no server")

    @pytest.mark.service("redis")
    def test_redis(connection): ...

    @pytest.mark.service("redis")
    def test_redis_again(connection): ...
"""


def test_a_test_without_its_service_is_skipped_with_one_clear_line(run, pytester, free_port):
    pytester.makeini(f"[pytest]\nlexigram_services = redis = 127.0.0.1:{free_port}")
    result = run(SERVICE_TEST, "-rs")
    result.assert_outcomes(skipped=2)
    # One line for both: pytest folds skips of one place and reason.
    lines = [line for line in result.outlines if "does not answer" in line]
    assert len(lines) == 1
    assert lines[0].startswith("SKIPPED [2]")
    assert lines[0].endswith(f"Redis does not answer at 127.0.0.1:{free_port}")


def test_a_test_without_its_service_fails_where_services_are_required(
    run, pytester, free_port, monkeypatch
):
    monkeypatch.setenv("LEX_REQUIRE_SERVICES", "1")
    pytester.makeini(f"[pytest]\nlexigram_services = redis = 127.0.0.1:{free_port}")
    result = run(SERVICE_TEST)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [f"Redis does not answer at 127.0.0.1:{free_port}, and LEX_REQUIRE_SERVICES is set"]
    )


def test_a_service_is_asked_once_a_run(run, pytester, free_port, monkeypatch):
    from lexigram.testing.services import Service

    asked = []
    monkeypatch.setattr(Service, "answers", lambda self: asked.append(self.name))
    run(SERVICE_TEST).assert_outcomes(skipped=2)
    assert asked == ["redis"]


def test_a_mark_may_name_several_services(run, monkeypatch):
    from lexigram.testing.services import Service

    monkeypatch.setattr(Service, "answers", lambda self: self.name == "redis")
    result = run(
        """
        import pytest

        @pytest.mark.service("redis", "nats")
        def test_both(): ...
        """,
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*NATS does not answer at 127.0.0.1:4222"])


def test_an_unknown_service_fails_and_lists_the_known_ones(run):
    result = run(
        """
        import pytest

        @pytest.mark.service("redsi")
        def test_typo(): ...
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["no service is called 'redsi' (there are: nats, postgresql, rabbitmq, redis)"]
    )


def test_a_wrong_address_in_the_settings_is_told_with_the_line(run, pytester):
    pytester.makeini("[pytest]\nlexigram_services = redis at home")
    result = run(SERVICE_TEST)
    result.stdout.fnmatch_lines(["*lexigram_services: 'redis at home' is not of the form*"])


def test_the_marker_is_described(pytester):
    result = pytester.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.service(?names): the test needs these servers;*"])
