"""The module binds what its section says, flushes at the end, and tells the truth meanwhile."""

import subprocess
import sys
import threading

import pytest
from anyio import to_thread
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lexigram.app import Application
from lexigram.config import ConfigSourceError, Environment, LexigramConfig
from lexigram.contracts.core import HealthStatus
from lexigram.contracts.observability import (
    MetricsProtocol,
    NoOpMetrics,
    NoOpTracer,
    TracerProtocol,
)
from lexigram.di import Provider
from lexigram.observability import (
    MissingLibraryError,
    ObservabilityConfig,
    ObservabilityModule,
    ObservabilityProvider,
    metrics_text,
    trace_ids,
)
from lexigram.testing.fakes import FakeMetrics, FakeTracer


class Kept(SpanExporter):
    """Keeps what it is given; fails while told to."""

    def __init__(self) -> None:
        self.spans = []
        self.batches = []
        self.closed = False
        self.exported = threading.Event()
        self.answer = SpanExportResult.SUCCESS

    def export(self, spans):
        self.batches.append(len(spans))
        self.spans.extend(spans)
        self.exported.set()
        return self.answer

    def shutdown(self):
        self.closed = True


class Refusing(Kept):
    def export(self, spans):
        raise ConnectionError("collector is away")


class Hanging(Kept):
    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def export(self, spans):
        self.release.wait()
        return super().export(spans)


def application(exporter=None, /, **settings):
    module = ObservabilityModule.configure(ObservabilityConfig(**settings), exporter=exporter)
    return Application("shop", modules=[module], config=LexigramConfig(app_name="shop"))


async def health_of(app):
    health = await app.health_check()
    return next(one for one in health.components if one.component == "observability")


def provider_of(app):
    return next(one for one in app.providers if isinstance(one, ObservabilityProvider))


async def test_by_default_nothing_is_recorded():
    async with Application("shop", modules=[ObservabilityModule], config=LexigramConfig()) as app:
        assert isinstance(app.container.get(TracerProtocol), NoOpTracer)
        assert isinstance(app.container.get(MetricsProtocol), NoOpMetrics)
        health = await health_of(app)
    assert health.status is HealthStatus.HEALTHY
    assert health.message == "tracing off, metrics off"


async def test_the_section_switches_both_on():
    config = LexigramConfig.from_dict(
        {"observability": {"tracing": "otel", "exporter": "memory", "metrics": "prometheus"}}
    )
    async with Application("shop", modules=[ObservabilityModule], config=config) as app:
        tracer = app.container.get(TracerProtocol)
        tracer.start_span("work").end()
        assert [span.name for span in tracer.exporter.get_finished_spans()] == ["work"]
        app.container.get(MetricsProtocol).increment("paid")
        assert "paid_total 1.0" in metrics_text(app.container.get(MetricsProtocol))
        health = await health_of(app)
    assert health.message == "tracing otel, metrics prometheus"
    assert health.details == {"spans_exported": 1, "spans_failed": 0, "metrics_overflowing": []}


async def test_stop_exports_the_last_spans_and_closes_the_exporter():
    kept = Kept()
    async with application(kept, tracing="otel", export_interval=3600) as app:
        with app.container.get(TracerProtocol).start_span("last"):
            pass
        assert kept.spans == []
    assert [span.name for span in kept.spans] == ["last"]
    assert kept.closed


async def test_a_span_of_a_provider_that_shuts_down_is_exported_too():
    class Late(Provider):
        async def boot(self, container):
            self.tracer = container.get(TracerProtocol)
            self.tracer.start_span("boot").end()

        async def shutdown(self):
            self.tracer.start_span("shutdown").end()

    kept = Kept()
    module = ObservabilityModule.configure(ObservabilityConfig(tracing="otel"), exporter=kept)
    async with Application("shop", modules=[module], providers=[Late()]):
        pass
    assert [span.name for span in kept.spans] == ["boot", "shutdown"]


async def test_batches_have_the_given_size():
    kept = Kept()
    async with application(kept, tracing="otel", batch_size=2, export_interval=3600) as app:
        for n in range(5):
            app.container.get(TracerProtocol).start_span(str(n)).end()
    assert max(kept.batches) == 2
    assert [span.name for span in kept.spans] == ["0", "1", "2", "3", "4"]


async def test_spans_beyond_the_queue_drop_the_oldest():
    hanging = Hanging()
    settings = {"queue_size": 2, "batch_size": 2, "export_interval": 3600}
    async with application(hanging, tracing="otel", **settings) as app:
        for n in range(10):
            app.container.get(TracerProtocol).start_span(str(n)).end()
        hanging.release.set()
    names = [span.name for span in hanging.spans]
    assert len(names) <= 4  # two with the exporter, two waiting
    assert names[-2:] == ["8", "9"]


async def test_spans_are_exported_at_the_interval():
    kept = Kept()
    async with application(kept, tracing="otel", export_interval=0.01) as app:
        app.container.get(TracerProtocol).start_span("soon").end()
        assert await to_thread.run_sync(kept.exported.wait, 30)
        health = await health_of(app)
    assert health.status is HealthStatus.HEALTHY


async def test_an_exporter_that_hangs_does_not_hold_up_the_end(caplog):
    hanging = Hanging()
    async with application(hanging, tracing="otel", flush_timeout=0.05) as app:
        app.container.get(TracerProtocol).start_span("lost").end()
    hanging.release.set()
    assert "the last spans were not exported within 0.05 s" in caplog.text


async def test_an_exporter_that_cannot_be_closed_is_logged_and_the_end_goes_on(caplog):
    class Stuck(Kept):
        def shutdown(self):
            raise OSError("still busy")

    stuck = Stuck()
    async with application(stuck, tracing="otel") as app:
        app.container.get(TracerProtocol).start_span("last").end()
    assert [span.name for span in stuck.spans] == ["last"]
    assert "the exporter of spans could not be closed" in caplog.text


@pytest.mark.parametrize("exporter", ["console", "none"])
async def test_the_named_exporter_is_used(exporter, capsys):
    async with application(tracing="otel", exporter=exporter) as app:
        with app.container.get(TracerProtocol).start_span("shown"):
            pass
    out = capsys.readouterr().out
    assert ('"name": "shown"' in out) is (exporter == "console")


async def test_a_given_exporter_is_not_used_while_tracing_is_off():
    kept = Kept()
    async with application(kept, tracing="off") as app:
        app.container.get(TracerProtocol).start_span("x").end()
    assert kept.spans == []


@pytest.mark.parametrize(("given", "shown"), [("", "shop"), ("shop-api", "shop-api")])
async def test_the_service_is_named_by_the_section_or_the_application(given, shown):
    kept = Kept()
    settings = {"tracing": "otel", "service_name": given, "resource_attributes": {"region": "eu"}}
    async with application(kept, **settings) as app:
        app.container.get(TracerProtocol).start_span("x").end()
    (span,) = kept.spans
    assert span.resource.attributes["service.name"] == shown
    assert span.resource.attributes["region"] == "eu"


async def test_the_share_of_traces_is_obeyed():
    kept = Kept()
    async with application(kept, tracing="otel", sample_ratio=0.0) as app:
        app.container.get(TracerProtocol).start_span("x").end()
    assert kept.spans == []


async def test_limits_of_metrics_are_obeyed():
    settings = {"metrics": "prometheus", "max_label_sets": 1, "buckets": [0.5]}
    async with application(**settings) as app:
        metrics = app.container.get(MetricsProtocol)
        metrics.histogram("took", 0.1, {"id": "1"})
        metrics.histogram("took", 0.1, {"id": "2"})
        text = metrics_text(metrics)
        health = await health_of(app)
    assert 'took_bucket{id="1",le="0.5"} 1.0' in text
    assert 'took_bucket{id="__overflow__",le="+Inf"} 1.0' in text
    assert health.details["metrics_overflowing"] == ["took"]


async def test_health_tells_that_spans_are_lost_and_that_they_are_not_any_more():
    kept = Kept()
    kept.answer = SpanExportResult.FAILURE
    async with application(kept, tracing="otel", export_interval=3600) as app:
        tracer, provider = app.container.get(TracerProtocol), provider_of(app)
        tracer.start_span("lost").end()
        await _flush(tracer)
        bad = await provider.health_check()
        kept.answer = SpanExportResult.SUCCESS
        tracer.start_span("kept").end()
        await _flush(tracer)
        good = await provider.health_check()
    assert (bad.status, bad.error) == (
        HealthStatus.DEGRADED,
        "the last export of spans failed: Kept could not export",
    )
    assert (good.status, good.error) == (HealthStatus.HEALTHY, None)
    assert good.details == {"spans_exported": 1, "spans_failed": 1}


async def test_health_names_the_error_of_the_exporter():
    async with application(Refusing(), tracing="otel", export_interval=3600) as app:
        tracer = app.container.get(TracerProtocol)
        tracer.start_span("lost").end()
        await _flush(tracer)
        health = await health_of(app)
    assert health.status is HealthStatus.DEGRADED
    assert "ConnectionError: collector is away" in health.error


async def _flush(tracer):
    await to_thread.run_sync(tracer.provider.force_flush)


async def test_health_tells_that_figures_are_left_out():
    async with application(metrics="prometheus") as app:
        metrics = app.container.get(MetricsProtocol)
        metrics.increment("paid")
        metrics.gauge("paid", 1)
        health = await health_of(app)
    assert (health.status, health.error) == (
        HealthStatus.DEGRADED,
        "values are dropped of paid",
    )


async def test_log_records_carry_ids_only_while_the_application_runs():
    async with application(tracing="otel", exporter="none") as app:
        tracer = app.container.get(TracerProtocol)
        with tracer.start_span("work") as span:
            assert trace_ids()["span_id"] == span.context.span_id
    with tracer.start_span("after"):
        assert trace_ids() == {}


async def test_the_stub_takes_fakes_and_reads_nothing():
    tracer, metrics = FakeTracer(), FakeMetrics()
    module = ObservabilityModule.stub(tracer=tracer, metrics=metrics)
    async with Application("shop", modules=[module]) as app:
        assert app.container.get(TracerProtocol) is tracer
        assert app.container.get(MetricsProtocol) is metrics
        with tracer.start_span("work") as span:
            assert trace_ids()["span_id"] == span.context.span_id
        health = await health_of(app)
    assert health.message == "tracing given, metrics given"
    async with Application("shop", modules=[ObservabilityModule.stub()]) as app:
        assert isinstance(app.container.get(TracerProtocol), NoOpTracer)


async def test_an_override_takes_the_place_of_the_tracer():
    tracer = FakeTracer()
    module = ObservabilityModule.configure(ObservabilityConfig(tracing="otel"))
    async with Application("shop", modules=[module], overrides={TracerProtocol: tracer}) as app:
        assert app.container.get(TracerProtocol) is tracer
        with tracer.start_span("work"):
            assert trace_ids()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tracing": "jaeger"}, "tracing"),
        ({"exporter": "otlp"}, "exporter"),
        ({"metrics": "statsd"}, "metrics"),
        ({"sample_ratio": 1.5}, "sample_ratio"),
        ({"queue_size": 10, "batch_size": 11}, "queue_size, which is 10"),
        ({"export_interval": 0}, "export_interval"),
        ({"flush_timeout": 0}, "flush_timeout"),
        ({"max_label_sets": 0}, "max_label_sets"),
        ({"buckets": []}, "one or more"),
        ({"buckets": [1, 1]}, "greater than the one before"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        ObservabilityConfig(**settings)


def test_spans_in_memory_are_refused_in_production():
    config = ObservabilityConfig(tracing="otel", exporter="memory")
    (issue,) = config.validate_for_environment(Environment.PRODUCTION)
    assert issue.field == "exporter"
    assert config.validate_for_environment(Environment.TEST) == []
    off = ObservabilityConfig(exporter="memory")
    assert off.validate_for_environment(Environment.PRODUCTION) == []


@pytest.mark.parametrize(
    ("library", "settings", "command"),
    [
        ("opentelemetry", {"tracing": "otel"}, "pip install 'lexigram[otel]'"),
        ("prometheus_client", {"metrics": "prometheus"}, "pip install 'lexigram[prometheus]'"),
    ],
)
async def test_a_missing_library_is_named_with_the_command(library, settings, command, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("otel", "export", "prometheus"):
        monkeypatch.delitem(sys.modules, f"lexigram.observability.{name}", raising=False)
        package = sys.modules["lexigram.observability"]
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    provider = ObservabilityProvider(ObservabilityConfig(**settings))
    with pytest.raises(MissingLibraryError) as caught:
        async with Application("shop", providers=[provider]):
            pass
    assert command in str(caught.value)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("module", ["lexigram.observability", "lexigram.observability.module"])
def test_importing_loads_no_library_of_an_extra(module):
    heavy = ("opentelemetry", "prometheus_client", "loguru", "cattrs", "orjson", "yaml")
    code = (
        f"import sys, {module}; from lexigram.observability import ObservabilityModule;"
        f"ObservabilityModule.stub(); print(*(m for m in {heavy!r} if m in sys.modules))"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, check=True, capture_output=True, text=True).stdout.split() == []


def test_every_setting_can_be_given_by_a_variable():
    variables = {
        "LEX_OBSERVABILITY__SERVICE_NAME": "api",
        "LEX_OBSERVABILITY__TRACING": "otel",
        "LEX_OBSERVABILITY__EXPORTER": "none",
        "LEX_OBSERVABILITY__SAMPLE_RATIO": "0.5",
        "LEX_OBSERVABILITY__RESOURCE_ATTRIBUTES": '{"region": "eu"}',
        "LEX_OBSERVABILITY__QUEUE_SIZE": "20",
        "LEX_OBSERVABILITY__BATCH_SIZE": "10",
        "LEX_OBSERVABILITY__EXPORT_INTERVAL": "2",
        "LEX_OBSERVABILITY__FLUSH_TIMEOUT": "3",
        "LEX_OBSERVABILITY__METRICS": "prometheus",
        "LEX_OBSERVABILITY__MAX_LABEL_SETS": "7",
        "LEX_OBSERVABILITY__BUCKETS": "[0.1, 1]",
    }
    assert ObservabilityConfig.from_env(variables) == ObservabilityConfig(
        service_name="api",
        tracing="otel",
        exporter="none",
        sample_ratio=0.5,
        resource_attributes={"region": "eu"},
        queue_size=20,
        batch_size=10,
        export_interval=2.0,
        flush_timeout=3.0,
        metrics="prometheus",
        max_label_sets=7,
        buckets=(0.1, 1.0),
    )


def test_wrong_variables_are_named_with_what_was_expected():
    variables = {"LEX_OBSERVABILITY__BATCH_SIZE": "5000", "LEX_OBSERVABILITY__TRACING": "jaeger"}
    with pytest.raises(ConfigSourceError) as caught:
        ObservabilityConfig.from_env(variables)
    text = str(caught.value)
    assert "LEX_OBSERVABILITY__TRACING" in text
    assert "expected one of off, otel" in text
    assert "must not be greater than queue_size, which is 2048" in text
