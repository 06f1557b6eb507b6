"""An application starts in order, undoes what fails, and stops in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.failures import TIME_LIMIT, WAYS_TO_FAIL, WAYS_TO_FAIL_IN_A_TASK, Fail

from lexigram.app import Application, ApplicationError, AppShutdownError, AppStartupError, AppState
from lexigram.concurrency import CallAbortedError, CallTimeoutError
from lexigram.config import AppConfig, LexigramConfig
from lexigram.contracts.core.health import HealthStatus
from lexigram.di import Module, Provider, ProviderPriority, module
from lexigram.di.errors import PromiseError, ProviderError
from lexigram.events import ApplicationStarted

pytestmark = pytest.mark.anyio


class Recorder(Provider):
    """Writes down what happens to it."""

    def __init__(self, name: str, log: list[str], **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.log = log

    async def boot(self, container: Any) -> None:
        self.log.append(f"+{self.name}")

    async def shutdown(self) -> None:
        self.log.append(f"-{self.name}")


class Failing(Recorder):
    async def boot(self, container: Any) -> None:
        raise KeyError("no such key")


class Hanging(Recorder):
    """Boots for ever; says when it was cancelled."""

    async def boot(self, container: Any) -> None:
        self.log.append(f"~{self.name}")
        try:
            await anyio.sleep_forever()
        finally:
            self.log.append(f"cancelled {self.name}")


def limits(**seconds: float) -> LexigramConfig:
    return LexigramConfig(app=AppConfig(**seconds))


async def test_states_move_forward_only() -> None:
    app = Application("a")
    assert app.state is AppState.CREATED
    async with app:
        assert app.state is AppState.RUNNING
        assert app.is_running
    assert app.state is AppState.STOPPED
    with pytest.raises(ApplicationError, match="is stopped and cannot be started"):
        await app.start()


async def test_start_and_stop_may_be_called_from_different_tasks() -> None:
    class WithTasks(Provider):
        name = "with-tasks"

        async def boot(self, container: Any) -> None:
            self.group = anyio.create_task_group()
            await self.group.__aenter__()
            self.group.start_soon(anyio.sleep_forever)

        async def shutdown(self) -> None:
            self.group.cancel_scope.cancel()
            await self.group.__aexit__(None, None, None)

    app = Application("a", providers=[WithTasks])
    await asyncio.create_task(app.start())
    await asyncio.create_task(app.stop())
    assert app.state is AppState.STOPPED


async def test_providers_boot_by_dependencies_then_priority_and_stop_in_reverse() -> None:
    log: list[str] = []
    app = Application(
        "a",
        providers=[
            Recorder("late", log, priority=ProviderPriority.LOW),
            Recorder("after-late", log, dependencies=("late",), priority=0),
            Recorder("early", log, priority=ProviderPriority.CRITICAL),
            Recorder("domain", log, priority=ProviderPriority.DOMAIN),
            Recorder("application", log, priority=ProviderPriority.APPLICATION),
        ],
    )
    async with app:
        booted = list(log)
    assert booted == ["+early", "+domain", "+application", "+late", "+after-late"]
    assert log[len(booted) :] == ["-after-late", "-late", "-application", "-domain", "-early"]


async def test_providers_of_imported_modules_boot_first_also_through_modules_without_any() -> None:
    log: list[str] = []

    class Base(Module): ...

    class Middle(Module): ...

    class Top(Module): ...

    module(providers=[Recorder("base", log, priority=ProviderPriority.LOW)])(Base)
    module(imports=[Base])(Middle)
    module(imports=[Middle], providers=[Recorder("top", log, priority=0)])(Top)
    async with Application("a", modules=[Top]):
        pass
    assert log == ["+base", "+top", "-top", "-base"]


async def test_a_failing_provider_cancels_its_siblings_and_undoes_the_rest() -> None:
    log: list[str] = []
    app = Application(
        "a",
        providers=[
            Recorder("first", log, priority=0),
            Recorder("second", log, priority=10),
            Hanging("sibling", log),
            Failing("broken", log),
            Recorder("never", log, priority=100),
        ],
    )
    before = asyncio.all_tasks()
    with pytest.raises(ProviderError) as caught:
        await app.start()
    assert caught.value.provider == "broken"
    assert str(caught.value).startswith(
        "[LEX_ERR_PROV_001] provider \"broken\" of app failed to boot: KeyError: 'no such key'"
    )
    assert isinstance(caught.value.__cause__, KeyError)
    assert log == ["+first", "+second", "~sibling", "cancelled sibling", "-second", "-first"]
    assert app.state is AppState.STOPPED
    assert asyncio.all_tasks() == before


async def test_a_hanging_boot_hits_its_timeout() -> None:
    log: list[str] = []
    app = Application("a", providers=[Hanging("slow", log, boot_timeout=0.01)])
    with pytest.raises(ProviderError, match=r'"slow".*boot did not finish within 0\.01 s'):
        await app.start()
    assert log == ["~slow", "cancelled slow"]


async def test_boot_has_a_default_timeout_from_the_configuration() -> None:
    app = Application("a", limits(boot_timeout=0.01), providers=[Hanging("slow", [])])
    with pytest.raises(ProviderError, match="boot did not finish"):
        await app.start()


async def test_a_provider_that_is_not_required_degrades_health_whatever_it_raises() -> None:
    told: list[tuple[str, str]] = []

    class Optional(Failing):
        async def on_error(self, error: Exception, phase: str) -> None:
            told.append((type(error).__name__, phase))

    log: list[str] = []
    app = Application(
        "a", providers=[Optional("extra", log, required=False), Recorder("main", log)]
    )
    async with app:
        health = await app.health_check()
        assert health.status is HealthStatus.DEGRADED
        assert {item.component: item.status.value for item in health.components} == {
            "extra": "degraded",
            "main": "healthy",
        }
    assert told == [("KeyError", "boot")]
    assert log == ["+main", "-main"]


async def test_a_key_error_in_one_shutdown_does_not_stop_the_others() -> None:
    class BadEnd(Recorder):
        async def shutdown(self) -> None:
            self.log.append(f"!{self.name}")
            raise KeyError(self.name)

    log: list[str] = []
    app = Application(
        "a",
        providers=[
            Recorder("one", log, priority=0),
            BadEnd("two", log, priority=10),
            BadEnd("three", log, priority=20),
            Recorder("four", log, priority=30),
        ],
    )
    await app.start()
    with pytest.raises(AppShutdownError) as caught:
        await app.stop()
    assert log[4:] == ["-four", "!three", "!two", "-one"]
    assert caught.value.details["failed"] == ["three", "two"]
    assert isinstance(caught.value.cause, ExceptionGroup)
    assert app.state is AppState.STOPPED


async def test_a_hanging_shutdown_is_cancelled_in_time_and_the_rest_still_stops() -> None:
    class NeverEnds(Recorder):
        async def shutdown(self) -> None:
            await anyio.sleep_forever()

    log: list[str] = []
    app = Application(
        "a",
        limits(shutdown_timeout=0.02),
        providers=[Recorder("low", log, priority=0), NeverEnds("stuck", log, priority=10)],
    )
    before = asyncio.all_tasks()
    await app.start()
    with pytest.raises(AppShutdownError, match="stuck"):
        await app.stop()
    assert log == ["+low", "+stuck", "-low"]
    assert asyncio.all_tasks() == before


async def test_stopping_twice_waits_for_the_first_stop() -> None:
    release = anyio.Event()
    log: list[str] = []

    class Slow(Recorder):
        async def shutdown(self) -> None:
            await release.wait()
            await super().shutdown()

    app = Application("a", providers=[Slow("slow", log)])
    await app.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app.stop)
        tasks.start_soon(app.stop)
        await anyio.wait_all_tasks_blocked()
        assert app.state is AppState.STOPPING
        release.set()
    assert log == ["+slow", "-slow"]


async def test_a_cancelled_body_still_shuts_down_gracefully() -> None:
    log: list[str] = []

    class Careful(Recorder):
        async def shutdown(self) -> None:
            await anyio.lowlevel.checkpoint()
            self.log.append("clean")

    with anyio.CancelScope() as scope:
        async with Application("a", providers=[Careful("careful", log)]):
            scope.cancel()
            await anyio.sleep_forever()
    assert log == ["+careful", "clean"]


async def test_a_cancelled_start_leaves_nothing_running() -> None:
    log: list[str] = []
    app = Application("a", providers=[Recorder("one", log, priority=0), Hanging("two", log)])
    before = asyncio.all_tasks()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app.start)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert log == ["+one", "~two", "cancelled two", "-one"]
    assert asyncio.all_tasks() == before
    assert app.state is AppState.STOPPED


async def test_two_providers_with_one_name_are_refused_by_name() -> None:
    app = Application("a", providers=[Recorder("same", []), Recorder("same", [])])
    with pytest.raises(AppStartupError, match='two providers are named "same"'):
        await app.start()


async def test_two_instances_of_one_provider_class_both_run() -> None:
    log: list[str] = []
    async with Application("a", providers=[Recorder("one", log), Recorder("two", log)]):
        pass
    assert sorted(log) == ["+one", "+two", "-one", "-two"]


async def test_an_unknown_dependency_is_named_with_the_nearest_match() -> None:
    app = Application(
        "a", providers=[Recorder("database", []), Recorder("b", [], dependencies=("databse",))]
    )
    with pytest.raises(AppStartupError, match=r'"databse", which.*did you mean "database"'):
        await app.start()


async def test_providers_that_wait_for_each_other_are_named() -> None:
    app = Application(
        "a",
        providers=[
            Recorder("x", [], dependencies=("y",)),
            Recorder("y", [], dependencies=("x",)),
        ],
    )
    with pytest.raises(AppStartupError, match="providers wait for each other: x -> y -> x"):
        await app.start()


async def test_optional_dependencies_order_when_present_and_are_ignored_when_absent() -> None:
    log: list[str] = []
    app = Application(
        "a",
        providers=[
            Recorder("b", log, priority=0, optional_dependencies=("a", "absent")),
            Recorder("a", log, priority=100),
        ],
    )
    async with app:
        assert log == ["+a", "+b"]


async def test_a_promise_not_kept_fails_the_boot_by_name() -> None:
    class Forgetful(Provider):
        name = "forgetful"

        async def register(self, container: Any) -> None:
            container.promise(Recorder)

    with pytest.raises(ProviderError, match="Recorder was promised") as caught:
        await Application("a", providers=[Forgetful]).start()
    assert isinstance(caught.value.__cause__, PromiseError)


async def test_a_value_promised_in_register_is_bound_in_boot_and_injected() -> None:
    class Pool: ...

    class Repo:
        def __init__(self, pool: Pool) -> None:
            self.pool = pool

    Repo.__init__.__annotations__["pool"] = Pool

    class Data(Provider):
        name = "data"

        async def register(self, container: Any) -> None:
            container.promise(Pool)
            container.singleton(Repo)

        async def boot(self, container: Any) -> None:
            container.bind(Pool, Pool())

    async with Application("a", providers=[Data]) as app:
        assert app.container.get(Repo).pool is app.container.get(Pool)


async def test_modules_and_providers_are_added_before_the_start_only() -> None:
    log: list[str] = []
    app = Application("a")
    app.add_provider(Recorder("one", log))
    app.add_providers([Recorder("two", log)])
    async with app:
        with pytest.raises(ApplicationError, match="before the start"):
            app.add_provider(Recorder("late", log))
        with pytest.raises(ApplicationError, match="before the start"):
            app.add_modules([])
        with pytest.raises(ApplicationError, match="before the start"):
            app.add_overrides({})
    assert sorted(log) == ["+one", "+two", "-one", "-two"]


async def test_module_hooks_run_after_boot_and_before_shutdown() -> None:
    log: list[str] = []

    class Shop(Module):
        @classmethod
        async def on_module_booted(cls) -> None:
            log.append("booted")

        @classmethod
        async def on_module_shutdown(cls) -> None:
            log.append("ending")

    module(providers=[Recorder("p", log)])(Shop)
    async with Application("a", modules=[Shop]):
        log.append("body")
    assert log == ["+p", "booted", "body", "ending", "-p"]


async def test_overrides_apply_before_anything_is_built() -> None:
    class Mailer: ...

    class FakeMailer(Mailer): ...

    seen: list[object] = []

    class Mail(Provider):
        name = "mail"

        async def register(self, container: Any) -> None:
            container.singleton(Mailer)

        async def boot(self, container: Any) -> None:
            seen.append(await container.resolve(Mailer))

    fake = FakeMailer()
    async with Application("a", providers=[Mail], overrides={Mailer: fake}) as app:
        assert seen == [fake]
        assert app.container.get(Mailer) is fake


async def test_an_override_that_nothing_provides_or_asks_for_is_refused() -> None:
    class Nobody: ...

    with pytest.raises(Exception, match="overrides has Nobody"):
        await Application("a", overrides={Nobody: Nobody()}).start()


async def test_boot_is_an_async_context_manager_that_always_stops() -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="body"):
        async with Application.boot("a", providers=[Recorder("p", log)]) as app:
            assert app.is_running
            raise ValueError("body")
    assert log == ["+p", "-p"]
    assert app.state is AppState.STOPPED


async def test_providers_know_before_they_register_whether_background_work_is_enabled():
    enabled = []

    class Worker(Provider):
        async def register(self, container):
            enabled.append(self.background_enabled)

    worker = Worker()
    async with Application("a", providers=[worker], background=False) as app:
        with pytest.raises(ApplicationError, match="running"):
            app.background_enabled = True
        assert not app.background_enabled
    async with Application("b", providers=[worker]):
        pass
    assert enabled == [False, True]


@pytest.mark.parametrize("step", ["register", "boot", "shutdown"])
def test_a_provider_whose_step_is_not_async_is_refused_by_name(step):
    def plain(self, *_):
        """Would be awaited."""

    with pytest.raises(TypeError, match=rf"Forgetful\.{step} is awaited.*write `async def {step}`"):
        type("Forgetful", (Provider,), {step: plain})


def limited(**limits: float) -> LexigramConfig:
    return LexigramConfig(app=AppConfig(**limits))


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_a_boot_that_fails_in_any_way_fails_the_start_by_name(
    fail: Fail, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Provider):
        async def boot(self, container: Any) -> None:
            await fail()

        async def on_error(self, error: Exception, phase: str) -> None:
            assert isinstance(error, Exception)
            await fail()

    config = limited(boot_timeout=TIME_LIMIT)
    with pytest.raises(ProviderError, match='"broken" of .* failed to boot: '):
        await Application("a", config, providers=[Broken]).start()
    [record] = caplog.records
    assert "on_error of provider broken failed" in record.getMessage()
    assert record.exc_info


@pytest.mark.parametrize("fail", WAYS_TO_FAIL_IN_A_TASK)
async def test_an_optional_provider_that_fails_in_any_way_degrades_health(fail: Fail) -> None:
    class Broken(Provider):
        required = False

        async def boot(self, container: Any) -> None:
            await fail()

    config = limited(boot_timeout=TIME_LIMIT)
    async with Application("a", config, providers=[Broken]) as app:
        assert (await app.health_check()).status is HealthStatus.DEGRADED


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_registration_a_resource_and_a_module_that_fail_in_any_way_fail_the_start(
    fail: Fail,
) -> None:
    class Broken(Provider):
        async def register(self, container: Any) -> None:
            await fail()

    async def resource() -> AsyncIterator[str]:
        await fail()
        yield "never"

    class Resources(Provider):
        async def register(self, container: Any) -> None:
            container.singleton(str, factory=resource)

    class BrokenModule(Module):
        @classmethod
        async def on_module_booted(cls) -> None:
            await fail()

    expected = (ValueError, CallAbortedError, CallTimeoutError, ProviderError)
    parts: tuple[dict[str, Any], ...] = (
        {"providers": [Broken]},
        {"providers": [Resources]},
        {"modules": [BrokenModule]},
    )
    for part in parts:
        with pytest.raises(expected):
            await Application("a", limited(boot_timeout=TIME_LIMIT), **part).start()


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_shutdown_that_fails_in_any_way_does_not_stop_the_others(fail: Fail) -> None:
    stopped = []

    class Broken(Provider):
        async def shutdown(self) -> None:
            await fail()

    class Last(Provider):
        priority = 0

        async def shutdown(self) -> None:
            stopped.append("provider")

    class BrokenModule(Module):
        @classmethod
        async def on_module_shutdown(cls) -> None:
            await fail()

    config = limited(shutdown_timeout=TIME_LIMIT)
    app = Application("a", config, modules=[BrokenModule], providers=[Broken, Last])
    await app.start()
    with pytest.raises(ExceptionGroup) as caught:
        await app.stop()

    assert stopped == ["provider"]
    of_module, of_provider = caught.value.exceptions
    assert isinstance(of_module, ValueError | CallAbortedError | CallTimeoutError)
    assert isinstance(of_provider, AppShutdownError)


@pytest.mark.parametrize("fail", WAYS_TO_FAIL)
async def test_a_listener_of_the_life_of_an_application_that_fails_in_any_way_is_logged(
    fail: Fail, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_event: Any) -> None:
        await fail()

    app = Application("a")
    app.events.subscribe(ApplicationStarted, broken, timeout=TIME_LIMIT)
    app.hooks.on(ApplicationStarted, broken, timeout=TIME_LIMIT)
    async with app:
        assert app.is_running
    assert all(record.exc_info is not None for record in caplog.records)
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if text.startswith("a handler of ApplicationStarted failed")]
    assert [text for text in told if text.startswith("hook ApplicationStarted: handler")]
