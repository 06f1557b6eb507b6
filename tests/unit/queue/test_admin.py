"""What the console shows of the bus is true, and its retry really retries."""

import importlib
from importlib.metadata import entry_points
from typing import Annotated

import pytest

from lexigram.app import Application
from lexigram.contracts.admin import (
    AdminContributorProtocol,
    PageContent,
    Tone,
    WidgetNotFoundError,
    WidgetParams,
)
from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.infra.tasks import DLQProtocol
from lexigram.contracts.observability.metrics import MetricsProtocol
from lexigram.contracts.queue import BusMessage, QueueError, QueueProtocol
from lexigram.di import Named
from lexigram.observability import ObservabilityConfig, ObservabilityProvider
from lexigram.queue import InMemoryQueue, NamedQueueConfig, QueueConfig, QueueModule
from lexigram.queue.admin import QueueAdminContributor
from lexigram.queue.admin.contributor import PAGES
from lexigram.queue.admin.handlers import (
    ConsumerLagWidgetHandler,
    FailedMessagesWidgetHandler,
    QueueDepthWidgetHandler,
)
from lexigram.queue.admin.renderer import PackageWidgetRenderer
from lexigram.queue.operations.control import BusControl
from lexigram.queue.operations.dead_letters import DeadLetters
from lexigram.queue.operations.dlq import BusDeadLetters
from lexigram.queue.options import DeadLetterPolicy
from lexigram.tasks import JobDeadLetters, TasksConfig, TasksModule
from lexigram.testing import wait_until

pytestmark = pytest.mark.anyio

HANDLERS = [QueueDepthWidgetHandler, ConsumerLagWidgetHandler, FailedMessagesWidgetHandler]
NO_PARAMS = WidgetParams()
QUICK = {"retry_base": 0.01, "retry_cap": 0.01}
CONFIG = QueueConfig(
    backends=[
        NamedQueueConfig(name="events", primary=True, **QUICK),
        NamedQueueConfig(name="audit", **QUICK),
    ]
)


class Handler:
    def __init__(self):
        self.is_broken = True
        self.handled = []

    async def __call__(self, message):
        if self.is_broken:
            raise ValueError("no stock")
        self.handled.append(message.payload)


@pytest.fixture
async def app():
    async with Application("shop", modules=[QueueModule.configure(CONFIG)]) as started:
        yield started


@pytest.fixture
def console(app):
    """The contributor the application itself has booted."""
    return app.container.get(QueueAdminContributor)


async def failed(app, numbers, backend="events"):
    """Dead letters of that backend, and the handler to repair."""
    queue = app.container.get(Annotated[QueueProtocol, Named(backend)])
    handler = Handler()
    await queue.subscribe("orders", handler, group="shipping")
    for number in numbers:
        await queue.publish("orders", BusMessage(id=f"m{number}", payload=number, max_retries=0))
    letters = DeadLetters(queue)

    async def are_all_dead():
        return len(await letters.list()) == len(numbers)

    await wait_until(are_all_dead)
    return handler


async def figure(console, name):
    model = (await console.render_widget(name, NO_PARAMS)).unwrap()
    (stat,) = model.content.stats
    return stat


async def test_widgets_show_what_the_broker_has(app, console):
    queue = app.container.get(QueueProtocol)
    await queue.driver.declare("orders", "archive")
    assert (await figure(console, "queue_depth")).value == 0
    await queue.publish_many("orders", [BusMessage(payload=n) for n in range(3)])
    depth = await figure(console, "queue_depth")
    assert (depth.value, depth.hint) == (3, "in 1 groups")
    lag = await figure(console, "consumer_lag")
    assert (lag.value, lag.tone) == (3, Tone.SUCCESS)
    await queue.publish_many("orders", [BusMessage(payload=n) for n in range(97)])
    assert (await figure(console, "consumer_lag")).tone is Tone.WARNING
    no_failures = await figure(console, "failed_messages")
    assert (no_failures.value, no_failures.tone) == ("✓ No failures", Tone.SUCCESS)


async def test_the_failed_widget_counts_the_dead_letters_of_all_backends(app, console):
    await failed(app, [1, 2])
    await failed(app, [3], backend="audit")
    found = await figure(console, "failed_messages")
    assert (found.value, found.tone, found.label) == (3, Tone.DANGER, "Failed messages")


async def test_retry_failed_sends_every_dead_letter_back_to_its_group(app, console):
    events = await failed(app, [1, 2])
    audit = await failed(app, [3], backend="audit")
    events.is_broken = audit.is_broken = False
    told = await console.execute_action("retry_failed", {})
    assert told == {
        "ok": True,
        "message": "retried 3 of 3 failed messages",
        "echo": {"retried": 3, "failed": 0},
    }
    await wait_until(lambda: (sorted(events.handled), audit.handled) == ([1, 2], [3]))
    again = await console.execute_action("retry_failed", {})
    assert (again["ok"], again["message"]) == (True, "no failed messages to retry")


async def test_retry_failed_takes_a_filter_and_refuses_nonsense(app, console):
    handler = await failed(app, [1, 2])
    handler.is_broken = False
    told = await console.execute_action("retry_failed", {"ids": ["m1"], "rate": "1000"})
    assert told["echo"] == {"retried": 1, "failed": 0}
    await wait_until(lambda: handler.handled == [1])
    for nonsense in ({"reason": "bad luck"}, {"colour": "blue"}, {"backend": "nobody"}):
        assert (await console.execute_action("retry_failed", nonsense))["ok"] is False
    assert len(await app.container.get(DeadLetters).list()) == 1


async def test_a_retry_that_fails_keeps_the_letters_and_says_so(app, console):
    await failed(app, [1, 2])
    queue = app.container.get(QueueProtocol)

    async def fails(*_):
        raise QueueError("no broker")

    queue.driver.redrive = fails
    told = await console.execute_action("retry_failed", {})
    assert (told["ok"], told["echo"]) == (False, {"retried": 0, "failed": 2})
    assert "no broker" in told["message"]
    assert len(await app.container.get(DeadLetters).list()) == 2


async def test_without_a_bus_retry_says_that_there_are_no_dead_letters():
    contributor = QueueAdminContributor()
    with pytest.raises(RuntimeError, match="has not booted"):
        await contributor.execute_action("retry_failed", {})
    async with Application("plain") as plain:
        await contributor.on_admin_boot(plain.container)
        told = await contributor.execute_action("retry_failed", {})
    assert (told["ok"], told["message"]) == (False, "dead letter queue is not registered")


async def test_unknown_actions_widgets_and_checks_are_told_apart(console):
    with pytest.raises(LookupError):
        await console.execute_action("explode", {})
    with pytest.raises(LookupError):
        await console.check_health("moon")
    error = (await console.render_widget("moon", NO_PARAMS)).unwrap_err()
    assert isinstance(error, WidgetNotFoundError)
    unbooted = await QueueAdminContributor().render_widget("queue_depth", NO_PARAMS)
    assert isinstance(unbooted.unwrap_err(), WidgetNotFoundError)


@pytest.mark.parametrize("kind", HANDLERS)
async def test_without_a_source_of_figures_a_widget_says_unavailable(kind):
    for source in (None, object()):
        (stat,) = (await kind(source).get_data(NO_PARAMS)).unwrap().stats
        assert (stat.value, stat.tone) == ("Unavailable", Tone.WARNING)


async def test_a_handler_takes_a_queue_or_any_object_with_figures():
    class Old:
        def get_stats(self):
            return {"pending": 5, "processing": 200, "dead_letter_count": 0}

    values = [(await kind(Old()).get_data(NO_PARAMS)).unwrap().stats[0].value for kind in HANDLERS]
    assert values == [5, 200, "✓ No failures"]
    async with InMemoryQueue() as queue:
        await queue.driver.declare("orders", "g")
        await queue.publish("orders", BusMessage())
        (stat,) = (await QueueDepthWidgetHandler(queue).get_data(NO_PARAMS)).unwrap().stats
        assert stat.value == 1


async def test_a_broker_that_does_not_answer_is_an_error_and_no_figure(app, console):
    async def fails():
        raise QueueError("no broker")

    app.container.get(QueueProtocol).driver.groups = fails
    assert "no broker" in str((await console.render_widget("queue_depth", NO_PARAMS)).unwrap_err())


async def test_a_group_that_goes_away_while_it_is_looked_at_is_left_out(app):
    queue = app.container.get(QueueProtocol)
    for group in ("archive", "tail"):
        await queue.driver.declare("orders", group)
    depth = queue.driver.depth

    async def drops_first(topic, group):
        await queue.driver.drop("orders", "tail")
        return await depth(topic, group)

    queue.driver.depth = drops_first
    assert [one.group for one in await app.container.get(BusControl).groups()] == ["archive"]


async def test_the_health_of_the_console_is_the_worst_of_all_backends(app, console):
    assert (await console.check_health("queue.broker")).status is HealthStatus.HEALTHY
    audit = app.container.get(Annotated[QueueProtocol, Named("audit")])
    await audit.driver.close()
    found = await console.check_health("queue.broker")
    assert found.status is HealthStatus.UNHEALTHY
    assert found.details["backends"]["events"]["status"] == "healthy"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_every_page_is_built_by_the_container_and_shows_real_rows(app, page):
    await failed(app, [1])
    module, _, name = page.handler.partition(":")
    kind = getattr(importlib.import_module(module), name)
    content = await app.container.get(kind).handle(None)
    assert isinstance(content, PageContent)
    (table,) = content.tables
    assert table.rows
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert "shipping" in table.rows[0]
    without = await kind().handle(None)
    assert without.stats[0].value == "Unavailable"


def test_the_contributor_is_found_by_entry_point_and_named_code_exists():
    (entry,) = entry_points(group="lexigram.admin.contributors", name="queue")
    contributor = entry.load()()
    assert isinstance(contributor, AdminContributorProtocol)
    assert (contributor.name, contributor.display_name, contributor.priority) == (
        "queue",
        "Queue",
        35,
    )
    widgets = {one.name: one.render_endpoint for one in contributor.get_dashboard_widgets()}
    assert widgets == {
        name: f"/admin/queue/widgets/{name}"
        for name in ("queue_depth", "consumer_lag", "failed_messages")
    }
    (item,) = contributor.get_navigation_items()
    assert [child.url for child in item.children] == ["/admin/queue/jobs", "/admin/queue/consumers"]
    assert [one.name for one in contributor.get_health_definitions()] == ["queue.broker"]
    named = [one.handler for one in contributor.get_actions()]
    named += [one.handler for one in contributor.get_management_pages()]
    for path in named:
        module, _, attribute = path.partition(":")
        assert hasattr(importlib.import_module(module), attribute)


async def test_handlers_renderer_and_dead_letters_are_bound(app):
    assert isinstance(app.container.get(PackageWidgetRenderer), PackageWidgetRenderer)
    for kind in HANDLERS:
        assert isinstance(app.container.get(kind), kind)
    assert isinstance(app.container.get(DLQProtocol), BusDeadLetters)
    assert isinstance(app.container.get(Annotated[DLQProtocol, Named("bus")]), BusDeadLetters)
    assert app.container.get(BusControl).names == ["events", "audit"]


async def test_jobs_and_bus_have_their_dead_letters_side_by_side():
    modules = [
        QueueModule.configure(CONFIG),
        TasksModule.configure(TasksConfig(backend="memory", workers=False), handlers=[]),
    ]
    async with Application("shop", modules=modules) as app:
        bus = app.container.get(Annotated[DLQProtocol, Named("bus")])
        jobs = app.container.get(Annotated[DLQProtocol, Named("jobs")])
    assert isinstance(bus, BusDeadLetters)
    assert isinstance(jobs, JobDeadLetters)


async def test_an_application_with_metrics_tells_depth_lag_and_dead_letters():
    class Gauges:
        def __init__(self):
            self.values, self.counts = {}, {}

        def gauge(self, name, value, tags=None):
            self.values[name] = value

        def increment(self, name, value=1.0, tags=None):
            self.counts[name] = self.counts.get(name, 0) + value

        def histogram(self, name, value, tags=None):
            pass

    metrics = Gauges()
    kept = NamedQueueConfig(name="events", dead_letters=DeadLetterPolicy(max_entries=1), **QUICK)
    config = QueueConfig(backends=[kept], sample_interval=0.02)
    observed = ObservabilityProvider(ObservabilityConfig(), metrics=metrics)
    shop = Application("shop", modules=[QueueModule.configure(config)], providers=[observed])
    async with shop as app:
        assert app.container.get(MetricsProtocol) is metrics
        queue = app.container.get(QueueProtocol)
        await queue.subscribe("orders", Handler(), group="shipping")
        for number in range(3):
            await queue.publish("orders", BusMessage(payload=number, max_retries=0))
        await wait_until(lambda: metrics.counts.get("queue.dead_letters_evicted") == 2)
        await wait_until(lambda: metrics.values.get("queue.dead_letters") == 1)
        assert (metrics.values["queue.depth"], metrics.values["queue.lag"]) == (0, 0)
