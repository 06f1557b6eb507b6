from typing import Protocol

import pytest

from lexigram.app import Application, AppState
from lexigram.config import Environment, LexigramConfig
from lexigram.contracts.events import EventBusProtocol
from lexigram.di import DynamicModule, Module, Provider, module, singleton
from lexigram.di.errors import ContainerValidationError, OverrideError
from lexigram.testing import TestEnvironment, assert_healthy, boot, override


class Mailer(Protocol):
    def send(self) -> str: ...


class SmtpMailer:
    def send(self) -> str:
        return "by smtp"


class FakeMailer:
    def send(self) -> str:
        return "by fake"


class Signup:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer


class Visit:
    def __init__(self, signup: Signup) -> None:
        self.signup = signup


class MailProvider(Provider):
    used: Mailer | None = None
    stopped = False

    async def register(self, container):
        container.singleton(Mailer, SmtpMailer)
        container.singleton(Signup)
        container.scoped(Visit)

    async def shutdown(self):
        self.stopped = True


class EagerMailProvider(MailProvider):
    async def boot(self, container):
        self.used = container.get(Signup).mailer


@module(providers=[MailProvider], exports=[Mailer, Signup, Visit])
class MailModule(Module):
    @classmethod
    def stub(cls) -> DynamicModule:
        return DynamicModule(module=cls, providers=[EagerMailProvider], exports=[Mailer, Signup])


class Clerk:
    def __init__(self, signup: Signup) -> None:
        self.signup = signup


class ClerkProvider(Provider):
    async def register(self, container):
        container.singleton(Clerk)


@singleton
class Printer:
    pass


@singleton
class Teller:
    def __init__(self, bus: EventBusProtocol) -> None:
        self.bus = bus


def sent(container):
    return container.get(Signup).mailer.send()


def make_app():
    return Application("shop", LexigramConfig(), modules=[MailModule])


async def make_app_later():
    return make_app()


async def test_a_module_is_booted_in_one_line_and_stopped_after_it():
    async with boot(MailModule) as app:
        assert app.is_running
        assert sent(app.container) == "by smtp"
        assert_healthy(await app.health_check())
    assert app.state is AppState.STOPPED
    assert [provider.stopped for provider in app.providers] == [True]


async def test_it_is_stopped_when_the_test_fails():
    with pytest.raises(KeyError):
        async with boot(MailModule) as app:
            raise KeyError
    assert app.state is AppState.STOPPED


@pytest.mark.parametrize(
    "parts",
    [
        [MailModule],
        [MailModule.stub()],
        [MailProvider],
        [EagerMailProvider()],
        [make_app],
        [make_app_later],
        [make_app()],
        [MailModule, ClerkProvider],
        [make_app, ClerkProvider(), Printer],
    ],
)
async def test_overrides_are_in_place_before_anything_is_built(parts):
    async with boot(*parts, overrides={Mailer: FakeMailer()}) as app:
        assert sent(app.container) == "by fake"
        for provider in app.providers:
            if isinstance(provider, EagerMailProvider):
                assert provider.used.send() == "by fake"


async def test_parts_beside_an_application_are_added_to_it():
    async with boot(make_app, ClerkProvider, Printer) as app:
        assert app.name == "shop"
        assert app.container.get(Clerk).signup is app.container.get(Signup)
        assert isinstance(app.container.get(Printer), Printer)


async def test_an_override_nobody_asks_for_is_refused():
    with pytest.raises(ContainerValidationError, match="overrides has FakeMailer"):
        async with boot(MailModule, overrides={FakeMailer: FakeMailer()}):
            pass


async def test_a_default_of_the_application_is_overridden_like_any_service(fake_event_bus):
    async with boot(Teller, overrides={EventBusProtocol: fake_event_bus}) as app:
        assert app.container.get(Teller).bus is fake_event_bus


async def test_no_file_and_no_variable_is_read(tmp_path, monkeypatch):
    (tmp_path / "application.yaml").write_text("app_name: [broken\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEX_APP__BOOT_TIMEOUT", "never")
    async with boot(MailModule) as app:
        assert app.config.env is Environment.TEST


async def test_config_is_given_as_data_or_as_an_object():
    async with boot(MailModule, config={"app": {"boot_timeout": 3}}) as app:
        assert (app.config.app.boot_timeout, app.config.env) == (3.0, Environment.TEST)
    config = LexigramConfig(app_name="mine")
    async with boot(MailModule, config=config) as app:
        assert app.config.app_name == "mine"


async def test_an_application_has_its_own_config():
    with pytest.raises(TypeError, match="config= is for modules"):
        async with boot(make_app, config={}):
            pass


async def test_two_applications_are_refused():
    with pytest.raises(TypeError, match="one application, not 2"):
        async with boot(make_app, make_app_later):
            pass


async def test_a_function_that_makes_something_else_is_refused():
    with pytest.raises(TypeError, match="which is not an Application"):
        async with boot(lambda: "app"):
            pass


async def test_override_reaches_what_was_built_and_gives_it_back():
    async with boot(MailModule) as app:
        before = app.container.get(Signup)
        fake = FakeMailer()
        async with override(app, Mailer, fake) as given:
            assert given is fake
            assert sent(app.container) == "by fake"
        assert app.container.get(Signup) is before
        async with override(app.container, Mailer, fake):
            assert sent(app.container) == "by fake"
        assert sent(app.container) == "by smtp"


async def test_override_of_what_a_boot_has_used_says_where_to_put_it():
    async with boot(MailModule.stub()) as app:
        with pytest.raises(OverrideError, match="in its boot"):
            async with override(app, Mailer, FakeMailer()):
                pass


async def test_an_environment_is_boot_as_an_object():
    async with TestEnvironment(MailModule, overrides={Mailer: FakeMailer()}) as env:
        assert env.get(Signup).mailer.send() == "by fake"
        assert await env.resolve(Signup) is env.get(Signup)
        async with env.scope() as scope:
            assert (await scope.resolve(Visit)).signup is env.get(Signup)
        async with env.override(Mailer, SmtpMailer()):
            assert env.get(Signup).mailer.send() == "by smtp"
        async with override(env, Mailer, SmtpMailer()):
            assert env.get(Signup).mailer.send() == "by smtp"
        app = env.app
    assert app.state is AppState.STOPPED


def test_an_environment_that_is_not_started_says_so():
    with pytest.raises(RuntimeError, match="is not started"):
        TestEnvironment(MailModule).get(Mailer)


def test_pytest_does_not_take_the_environment_for_a_test(request):
    names = [item.nodeid for item in request.session.items]
    assert not any("TestEnvironment::" in name for name in names)
    assert TestEnvironment.__test__ is False


async def test_the_fixture_boots_without_an_import(request):
    boot_fixture = request.getfixturevalue("boot")
    async with boot_fixture(MailModule) as app:
        assert app.is_running
