"""Maintenance on durable schedules and in memory: ticks, pauses, history, the built-in tasks."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import get_ident

import anyio
import pytest

from lexigram import clock
from lexigram.ai.workers import (
    MaintenanceStatus,
    MaintenanceTaskType,
    MaintenanceWorker,
    UnknownMaintenanceTaskError,
    WorkerMaintenanceRunHook,
)
from lexigram.ai.workers.maintenance import AgedCache
from lexigram.ai.workers.maintenance.schedules import TaskSchedules
from lexigram.ai.workers.maintenance.store import MemoryRuns, MemoryStatistics
from lexigram.ai.workers.maintenance.store_sql import SqlRuns
from lexigram.ai.workers.maintenance.times import PREFIX
from lexigram.ai.workers.statistics_store import SqlStatistics
from lexigram.ai.workers.vectors.memory import MemoryVectorStore
from lexigram.cache.memory import MemoryCache
from lexigram.contracts.core.health import HealthCheckResult, HealthStatus
from lexigram.contracts.data.vector import CollectionConfig, VectorRecord
from lexigram.contracts.infra.schedule.errors import CronExpressionError, InvalidScheduleError
from lexigram.contracts.infra.schedule.types import FiringState, ScheduleState
from lexigram.hooks import HookRegistry
from lexigram.schedule.callbacks import Callbacks
from lexigram.schedule.config import ScheduleConfig
from lexigram.schedule.report import Reporter
from lexigram.schedule.scheduler import Scheduler
from lexigram.sql import Database
from lexigram.testing.fakes.clock import FakeClock
from lexigram.testing.waiting import wait_until

KIND = MaintenanceTaskType.CACHE_CLEANUP
DAY = 24 * 3600.0


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgresql"))]
)
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def database(url):
    async with Database(url) as opened:
        yield opened


class Scheduled:
    """What a process has: schedules on a database, and one look at the clock."""

    def __init__(self, database):
        config, reporter = ScheduleConfig(), Reporter()
        self.scheduler = Scheduler(database, config, reporter=reporter)
        self.callbacks = Callbacks(database, config, reporter)
        self.schedules = TaskSchedules(self.scheduler, self.callbacks)

    async def look(self):
        await self.scheduler.fire_due()
        return await self.callbacks.run_pending()


def worker(database=None, scheduled=None, **settings):
    if database is not None:
        settings |= {"runs": SqlRuns(database), "statistics": SqlStatistics(database)}
    if scheduled is not None:
        settings["schedules"] = scheduled.schedules
    return MaintenanceWorker(**settings)


class Counted:
    def __init__(self, error=None):
        self.runs, self.error = 0, error

    async def __call__(self):
        self.runs += 1
        if self.error:
            raise self.error
        return 3


def counted(error=None):
    """A coroutine function that counts its runs."""
    count = Counted(error)

    async def handler():
        return await count()

    handler.count = count
    return handler


# --- schedules ------------------------------------------------------------------------------------


async def test_a_cron_task_runs_at_every_tick_and_each_run_is_in_the_history(database):
    with clock.use(FakeClock(datetime(2030, 1, 1, 11, 59, tzinfo=UTC))) as time:
        scheduled, handler = Scheduled(database), counted()
        one = worker(database, scheduled)
        one.register_task("sweep", KIND, handler, schedule_cron="0 * * * *")
        await one.start()
        for _ in range(3):
            assert await scheduled.look() == 0
            time.advance(3600)
            assert await scheduled.look() == 1
        await one.stop()
        assert handler.count.runs == 3
        history = await one.history("sweep")
        assert [each.status for each in history] == [MaintenanceStatus.COMPLETED] * 3
        assert [each.items_processed for each in history] == [3, 3, 3]
        assert one.get_task_status("sweep")["run_count"] == 3
        fired = await scheduled.scheduler.firings(f"{PREFIX}sweep")
        assert {each.state for each in fired} == {FiringState.DONE}


async def test_a_tick_is_run_by_one_of_two_processes(database):
    with clock.use(FakeClock(datetime(2030, 1, 1, tzinfo=UTC))) as time:
        places = [Scheduled(database), Scheduled(database)]
        handlers = [counted(), counted()]
        workers = []
        for place, handler in zip(places, handlers, strict=True):
            one = worker(database, place)
            one.register_task("sweep", KIND, handler, interval_seconds=60)
            await one.start()
            workers.append(one)
        for _ in range(4):
            time.advance(60)
            async with anyio.create_task_group() as tasks:
                for place in places:
                    tasks.start_soon(place.look)
        for one in workers:
            await one.stop()
        assert sum(handler.count.runs for handler in handlers) == 4
        # Each knows of the runs of the other.
        await workers[0].refresh()
        assert workers[0].get_task_status("sweep")["run_count"] == 4


async def test_disabled_stays_disabled_over_a_restart_until_it_is_enabled(database):
    with clock.use(FakeClock(datetime(2030, 1, 1, tzinfo=UTC))) as time:
        handler = counted()

        async def run(change=None):
            scheduled = Scheduled(database)
            one = worker(database, scheduled)
            one.register_task("sweep", KIND, handler, interval_seconds=60)
            await one.start()
            if change is not None:
                assert getattr(one, change)("sweep")
                await one.sync()
            time.advance(61)
            await scheduled.look()
            await one.stop()
            return one.get_task_status("sweep")["enabled"]

        assert await run() is True
        assert await run("disable_task") is False
        assert await run() is False
        assert handler.count.runs == 1
        assert await run("enable_task") is True
        assert handler.count.runs == 2


async def test_what_an_operator_paused_is_seen_and_not_resumed(database):
    scheduled = Scheduled(database)
    one = worker(database, scheduled)
    one.register_task("sweep", KIND, counted(), interval_seconds=60)
    await one.start()
    await scheduled.scheduler.pause(f"{PREFIX}sweep")
    await one.sync()
    assert one.get_task_status("sweep")["enabled"] is False
    await one.stop()


async def test_a_task_registered_disabled_makes_no_tick(database):
    scheduled = Scheduled(database)
    one = worker(database, scheduled)
    one.register_task("sweep", KIND, counted(), interval_seconds=60, enabled=False)
    await one.start()
    info = await scheduled.scheduler.get(f"{PREFIX}sweep")
    assert info.state is ScheduleState.PAUSED
    await one.stop()


async def test_an_unregistered_task_has_no_schedule_and_a_changed_one_a_new_time(database):
    scheduled = Scheduled(database)
    one = worker(database, scheduled)
    one.register_task("sweep", KIND, counted(), interval_seconds=60)
    one.register_task("other", KIND, counted(), interval_seconds=60)
    await one.start()
    one.register_task("sweep", KIND, counted(), interval_seconds=30)
    assert one.unregister_task("other")
    assert not one.unregister_task("other")
    await one.sync()
    assert (await scheduled.scheduler.get(f"{PREFIX}sweep")).schedule.every == 30
    assert await scheduled.scheduler.get(f"{PREFIX}other") is None
    await one.stop()


async def test_a_failed_run_is_a_failed_firing_and_degrades_health(database):
    with clock.use(FakeClock(datetime(2030, 1, 1, tzinfo=UTC))) as time:
        scheduled = Scheduled(database)
        one = worker(database, scheduled)
        one.register_task("sweep", KIND, counted(OSError("disk")), interval_seconds=60)
        await one.start()
        assert (await one.health_check()).status is HealthStatus.HEALTHY
        time.advance(61)
        await scheduled.look()
        [fired] = await scheduled.scheduler.firings(f"{PREFIX}sweep")
        assert fired.state is FiringState.FAILED
        assert "disk" in fired.error
        health = await one.health_check()
        assert (health.status, "sweep" in health.message) == (HealthStatus.DEGRADED, True)
        await one.stop()
        assert (await one.health_check()).status is HealthStatus.UNHEALTHY


async def test_without_schedules_of_the_application_it_has_its_own_in_memory():
    handler = counted()
    one = MaintenanceWorker()
    one.register_task("sweep", KIND, handler, interval_seconds=0.1)
    await one.start()
    await wait_until(lambda: handler.count.runs >= 2)
    one.disable_task("sweep")
    await one.sync()
    await one.stop()
    assert one.get_stats()["successful_runs"] == handler.count.runs
    assert one.get_stats()["running"] is False


async def test_stop_waits_for_a_run_that_goes_on():
    entered, leave, done = anyio.Event(), anyio.Event(), []

    async def slow():
        entered.set()
        await leave.wait()
        done.append(1)

    one = MaintenanceWorker()
    one.register_task("slow", KIND, slow, interval_seconds=0.1)
    await one.start()
    await entered.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.stop)
        await anyio.lowlevel.checkpoint()
        leave.set()
    assert done


async def test_a_worker_that_cannot_reach_its_schedules_says_so_in_start(sqlite_url):
    database = Database(sqlite_url)
    await database.connect()
    scheduled = Scheduled(database)
    one = worker(scheduled=scheduled)
    one.register_task("sweep", KIND, counted(), interval_seconds=60)
    await database.execute("DROP TABLE lexigram_schedules")
    with pytest.raises(Exception, match="lexigram_schedules"):
        await one.start()
    await one.stop()
    await database.close()


# --- runs -----------------------------------------------------------------------------------------


async def test_run_now_counts_as_a_run_and_emits_the_hook():
    told, hooks = [], HookRegistry()
    hooks.on(WorkerMaintenanceRunHook, told.append)
    one = MaintenanceWorker(hooks=hooks)
    one.register_task("sweep", KIND, counted(), interval_seconds=60)
    result = await one.run_task_now("sweep")
    assert (result.status, result.items_processed) == (MaintenanceStatus.COMPLETED, 3)
    stats = one.get_stats()
    assert (stats["total_runs"], stats["successful_runs"], stats["history_size"]) == (1, 1, 1)
    status = one.get_task_status("sweep")
    assert (status["run_count"], status["last_status"]) == (1, "completed")
    assert told == [WorkerMaintenanceRunHook(task_type="cache_cleanup")]
    assert one.get_recent_results()[0]["task_name"] == "sweep"


async def test_a_lambda_that_returns_a_coroutine_is_awaited_and_a_plain_function_runs_in_a_thread():
    one, seen, here = MaintenanceWorker(), [], get_ident()

    async def inner():
        seen.append("ran")
        return {"items_processed": 2, "items_deleted": 1, "metadata": {"a": 1}}

    one.register_task("lambda", KIND, lambda: inner(), interval_seconds=60)
    one.register_task("thread", KIND, lambda: seen.append(get_ident() != here), interval_seconds=60)
    result = await one.run_task_now("lambda")
    assert (result.items_processed, result.items_deleted, result.metadata) == (2, 1, {"a": 1})
    await one.run_task_now("thread")
    assert seen == ["ran", True]


async def test_a_run_that_takes_too_long_is_stopped_and_failed():
    one = MaintenanceWorker()
    one.register_task("slow", KIND, anyio.sleep_forever, interval_seconds=60, timeout=0.01)
    result = await one.run_task_now("slow")
    assert (result.status, result.error) == (
        MaintenanceStatus.FAILED,
        "Task timed out after 0.01s",
    )


async def test_a_tick_while_a_run_goes_on_is_skipped_and_noted():
    leave, runs = anyio.Event(), []

    async def slow():
        runs.append(1)
        await leave.wait()

    one = MaintenanceWorker()
    one.register_task("slow", KIND, slow, interval_seconds=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run_task_now, "slow")
        await wait_until(lambda: runs)
        await one._tick("slow", None)
        leave.set()
    assert len(runs) == 1
    assert [each["status"] for each in one.get_recent_results()] == ["completed", "skipped"]
    assert one.get_stats()["total_runs"] == 1


async def test_what_makes_no_sense_is_refused():
    one = MaintenanceWorker()
    with pytest.raises(ValueError, match="requires either schedule_cron or interval_seconds"):
        one.register_task("x", KIND, counted())
    with pytest.raises(ValueError, match="timeout"):
        one.register_task("x", KIND, counted(), interval_seconds=1, timeout=0)
    with pytest.raises(CronExpressionError, match="minute '99' is out of range"):
        one.register_task("x", KIND, counted(), schedule_cron="99 * * * *")
    with pytest.raises(InvalidScheduleError, match="repeats every 0"):
        one.register_task("x", KIND, counted(), interval_seconds=0)
    assert not one.get_all_tasks()
    one.register_task("sweep", KIND, counted(), interval_seconds=1)
    with pytest.raises(UnknownMaintenanceTaskError, match="Task not found: swep") as caught:
        await one.run_task_now("swep")
    assert caught.value.hint == "did you mean sweep?"
    assert not one.enable_task("nothing")
    with pytest.raises(ValueError, match="no vector store"):
        await one.optimize_vector_indexes()


# --- stores ---------------------------------------------------------------------------------------


async def test_both_stores_of_runs_keep_the_latest_of_each_task(database, monkeypatch):
    for module in ("store", "store_sql"):
        monkeypatch.setattr(f"lexigram.ai.workers.maintenance.{module}.MAX_HISTORY_SIZE", 3)
    for runs in (SqlRuns(database), MemoryRuns()):
        one = MaintenanceWorker(runs=runs)
        one.register_task("a", KIND, counted(), interval_seconds=60)
        one.register_task("b", KIND, counted(OSError("x")), interval_seconds=60)
        for name in ("a", "a", "b", "a", "a"):
            await one.run_task_now(name)
        assert [each.task_name for each in await one.history()] == ["a", "a", "b", "a"]
        assert len(await one.history("a")) == 3
        summary = await runs.summary("b")
        assert (summary.count, summary.last.error) == (1, "OSError: x")
        assert (await runs.summary("c")).last is None


async def test_statistics_of_both_stores_are_summed_by_period(database):
    for statistics in (SqlStatistics(database), MemoryStatistics()):
        await statistics.add({"jobs": 2.0}, 3600)
        await statistics.add({"jobs": 3.0, "hits": 1.0}, 3600)
        await statistics.put({"waiting": 7.0}, 3600)
        await statistics.put({"waiting": 4.0}, 7200)
        read = [(row["period"], row["name"], row["value"]) for row in await statistics.since(3600)]
        assert read == [
            (3600, "hits", 1.0),
            (3600, "jobs", 5.0),
            (3600, "waiting", 7.0),
            (7200, "waiting", 4.0),
        ]
        assert await statistics.delete_before(7200) == 3
        assert len(await statistics.since(0)) == 1


# --- the built-in tasks ---------------------------------------------------------------------------


async def test_roll_ups_add_what_counters_grew_by_and_can_be_read_back(database):
    with clock.use(FakeClock(datetime(2030, 1, 1, 12, 30, tzinfo=UTC))) as time:
        counters = {"done": 5}

        async def levels():
            return {"pending": counters["done"] * 10}

        one = worker(database, counters={"jobs": lambda: counters}, levels={"waiting": levels})
        await one.aggregate_metrics()
        counters["done"] = 7
        await one.aggregate_metrics()
        time.advance(3600)
        counters["done"] = 2  # the counter began anew
        done = await one.aggregate_metrics()
        assert done["metadata"]["added"] == {"jobs.done": 2}
        read = await one.statistics(clock.now() - timedelta(days=1))
        values = [(row["name"], row["value"]) for row in read]
        assert values == [
            ("jobs.done", 7.0),
            ("waiting.pending", 70.0),
            ("jobs.done", 2.0),
            ("waiting.pending", 20.0),
        ]


async def test_the_health_sweep_fails_and_names_what_is_not_healthy():
    async def good(timeout):
        return HealthCheckResult("a")

    async def bad(timeout):
        return HealthCheckResult("b", HealthStatus.UNHEALTHY, "away")

    one = MaintenanceWorker(checks={"store": good, "queue": bad})
    one.register_task("health", MaintenanceTaskType.HEALTH_CHECK, one.check_health, "* * * * *")
    result = await one.run_task_now("health")
    assert result.status is MaintenanceStatus.FAILED
    assert "queue is unhealthy" in result.error


async def test_indexes_are_optimized_and_old_versions_removed_where_the_store_can():
    class Store(MemoryVectorStore):
        done = ()

        async def optimize_indexes(self, collection_name=None):
            self.done += ("optimize",)
            return 2

        async def vacuum(self, collection_name=None):
            self.done += ("vacuum",)
            return 4096

        async def checksum(self, collection_name=None):
            return ""

    store = Store()
    done = await MaintenanceWorker(store).optimize_vector_indexes()
    assert store.done == ("optimize", "vacuum")
    assert done == {"items_processed": 2, "metadata": {"freed_bytes": 4096}}
    plain = await MaintenanceWorker(MemoryVectorStore()).optimize_vector_indexes()
    assert plain["items_processed"] == 0


async def test_a_real_table_is_compacted(tmp_path):
    from lexigram.ai.workers.vectors.lancedb import LanceVectorStore

    store = LanceVectorStore(str(tmp_path / "db"))
    collection = await store.create_collection(CollectionConfig("notes", 4))
    for number in range(5):
        await collection.upsert([VectorRecord(str(number), [1.0, 0.0, 0.0, float(number)])])
    one = MaintenanceWorker(store)
    one.register_task(
        "index",
        MaintenanceTaskType.INDEX_OPTIMIZATION,
        one.optimize_vector_indexes,
        interval_seconds=60,
    )
    result = await one.run_task_now("index")
    assert (result.error, result.items_processed) == (None, 1)
    assert await collection.count() == 5
    await store.disconnect()


async def lance(tmp_path: Path):
    from lexigram.ai.workers.vectors.lancedb import LanceVectorStore

    store = LanceVectorStore(str(tmp_path / "db"))
    collection = await store.create_collection(CollectionConfig("notes", 2))
    here, gone = tmp_path / "here.md", tmp_path / "gone.md"
    here.write_text("x")
    uris = [
        str(here),
        str(gone),
        gone.with_name("gone too.md").as_uri(),
        "https://example.org/x",
        "/no/such/folder/on/any/disk.md",
    ]
    records = [
        VectorRecord(f"{n}-{part}", [1.0, 0.0], {"document_id": f"d{n}", "uri": uri}, "text")
        for n, uri in enumerate(uris)
        for part in range(2)
    ]
    await collection.upsert(records)
    return store, collection


async def test_documents_whose_file_is_gone_are_named_and_removed_only_when_asked(tmp_path):
    store, collection = await lance(tmp_path)
    one = MaintenanceWorker(store)
    looked = await one.cleanup_documents()
    assert (looked["items_processed"], looked["items_deleted"]) == (5, 0)
    names = {Path(each["uri"]).name for each in looked["metadata"]["gone"]}
    assert names == {"gone.md", "gone%20too.md"}
    assert await collection.count() == 10
    done = await one.cleanup_documents(dry_run=False)
    assert done["items_deleted"] == 4
    assert await collection.count() == 6
    await store.disconnect()


# --- ages of cache entries ------------------------------------------------------------------------


async def test_unused_vectors_are_deleted_and_used_ones_are_kept():
    with clock.use(FakeClock()) as time:
        backend = MemoryCache()
        await backend.set("of somebody else", 1)
        cache = AgedCache(backend)
        await cache.set_many({"old": b"1", "used": b"2"})
        for _ in range(4):
            time.advance(10 * DAY)
            assert (await cache.get("used")).unwrap() == b"2"
        one = MaintenanceWorker(cache=cache)
        done = await one.cleanup_old_embeddings_cache(max_age_days=30)
        # The old one, and what the used one left behind on its way.
        assert done["items_deleted"] >= 2
        assert (await cache.get("old")).unwrap() is None
        assert (await cache.get("used")).unwrap() == b"2"
        assert (await backend.get("of somebody else")).unwrap() == 1
        assert (await one.cleanup_old_embeddings_cache(30))["items_deleted"] == 0


async def test_the_cache_with_ages_counts_hits_and_misses_and_can_be_cleared():
    backend = MemoryCache()
    cache = AgedCache(backend)
    await cache.set("a", 1)
    assert (await cache.get_many(["a", "b"])).unwrap() == {"a": 1}
    assert (cache.hits, cache.misses, cache.stored) == (1, 1, 1)
    assert (await cache.exists("a")).unwrap() is True
    assert (await cache.delete("a")).unwrap() is True
    await cache.set_many({"x:1": 1, "a:x:1": 2})
    assert (await cache.delete_pattern("x:*")).unwrap() == 1
    assert (await cache.get("a:x:1")).unwrap() == 2
    await cache.clear()
    assert (await cache.get_many(["a:x:1"])).unwrap() == {}
    assert len(backend) == 0
