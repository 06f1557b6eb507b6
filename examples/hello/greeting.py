"""Words for the time of day, from the configuration."""

from typing import ClassVar

from attrs import field, frozen
from attrs.validators import le

from examples.hello.clock import Clock, ClockModule
from lexigram.config import BaseConfig, doc
from lexigram.contracts.core.di import ContainerRegistrarProtocol
from lexigram.di import Module, Provider, module

NOON = 12


@frozen(kw_only=True)
class GreetingConfig(BaseConfig):
    config_section: ClassVar[str] = "greeting"

    morning: str = field(default="good morning", metadata=doc("Said before noon."))
    evening: str = field(default="good evening", metadata=doc("Said from evening_from on."))
    evening_from: int = field(default=18, validator=le(23), metadata=doc("Hour of the day."))
    otherwise: str = field(default="hello", metadata=doc("Said in between."))


class Greeter:
    def __init__(self, clock: Clock, config: GreetingConfig) -> None:
        self._clock, self._config = clock, config

    def greet(self, who: str) -> str:
        hour = self._clock.now().hour
        words = self._config.otherwise
        if hour < NOON:
            words = self._config.morning
        elif hour >= self._config.evening_from:
            words = self._config.evening
        return f"{words}, {who}"


class GreetingProvider(Provider):
    config_key = "greeting"
    config_model = GreetingConfig

    async def register(self, container: ContainerRegistrarProtocol) -> None:
        container.singleton(GreetingConfig, self.config)
        container.singleton(Greeter)


# GreetingConfig is not exported: no other module can ask for it.
@module(imports=[ClockModule], providers=[GreetingProvider], exports=[Greeter])
class GreetingModule(Module):
    pass
