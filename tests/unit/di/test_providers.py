"""What a provider is without an application: names, settings, defaults."""

import pytest

from lexigram.contracts.core.health import HealthStatus
from lexigram.di import Container, Provider, ProviderPriority, ProviderState


class MailProvider(Provider):
    priority = ProviderPriority.INFRASTRUCTURE
    dependencies = ("config",)


class Named(Provider):
    name = "by hand"


class Child(MailProvider): ...


def test_the_name_comes_from_the_class_unless_it_is_given():
    assert MailProvider().name == "mail"
    assert Named().name == "by hand"
    assert MailProvider(name="other").name == "other"
    assert MailProvider.name == "mail"


def test_a_subclass_keeps_the_name_its_parent_was_given_but_not_the_one_it_derived():
    class Heir(Named): ...

    assert Heir().name == "by hand"
    assert Child().name == "child"


def test_settings_may_be_given_to_an_instance():
    provider = MailProvider(
        priority=ProviderPriority.LOW,
        dependencies=("a",),
        optional_dependencies=("b",),
        boot_timeout=3.0,
        required=False,
    )
    assert provider.priority is ProviderPriority.LOW
    assert provider.dependencies == ("a",)
    assert provider.optional_dependencies == ("b",)
    assert provider.boot_timeout == 3.0
    assert provider.required is False
    assert MailProvider().dependencies == ("config",)


async def test_every_method_has_a_working_default():
    provider = MailProvider()
    container = Container()
    await provider.register(container.registrar(container.modules.root, provider))
    container.freeze()
    await provider.boot(container.boot_view(container.modules.root, provider))
    await provider.on_error(ValueError("x"), "boot")
    await provider.shutdown()
    health = await provider.health_check()
    assert (health.component, health.status) == ("mail", HealthStatus.HEALTHY)
    assert provider.config is None


def test_priorities_put_domain_between_normal_and_application():
    order = sorted(ProviderPriority)
    assert [item.name for item in order] == [
        *("CRITICAL", "INFRASTRUCTURE", "SECURITY", "NORMAL", "DOMAIN", "APPLICATION"),
        *("PRESENTATION", "COMMS", "LOW"),
    ]


@pytest.mark.parametrize("state", list(ProviderState))
def test_a_provider_is_booted_in_one_state_only(state):
    provider = MailProvider()
    provider.state = state
    assert provider.is_booted == (state is ProviderState.BOOTED)
    assert repr(provider) == f"<MailProvider 'mail' {state.value}>"
