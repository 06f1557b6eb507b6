"""Providers get their section, checked; mistakes are told all at once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from lexigram.app import Application
from lexigram.config import BaseConfig, ConfigSourceError, ConfigurationError, LexigramConfig
from lexigram.di import Provider

pytestmark = pytest.mark.anyio


@frozen(kw_only=True)
class ShopConfig(BaseConfig):
    config_section = "shop"
    size: int = 1
    name: str = "corner"


class Shop(Provider):
    config_key = "shop"
    config_model = ShopConfig

    def __init__(self, config: ShopConfig | None = None) -> None:
        super().__init__()
        self.config = config

    async def register(self, container: Any) -> None:
        container.singleton(ShopConfig, self.config)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_a_section_is_read_at_start_from_file_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "application.yaml").write_text("shop:\n  size: 3\n  name: big\n")
    monkeypatch.setenv("LEX_SHOP__SIZE", "4")
    async with Application("a", providers=[Shop()]) as app:
        assert app.container.get(ShopConfig) == ShopConfig(size=4, name="big")


async def test_creating_an_application_reads_nothing_and_touches_no_logging(tmp_path: Path) -> None:
    (tmp_path / "application.yaml").write_text("not: [valid")
    handlers = list(logging.getLogger().handlers)
    Application("a", providers=[Shop()])
    assert logging.getLogger().handlers == handlers


async def test_an_explicit_config_of_a_provider_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEX_SHOP__SIZE", "9")
    async with Application("a", providers=[Shop(ShopConfig(size=2))]) as app:
        assert app.container.get(ShopConfig).size == 2


async def test_a_section_nobody_claims_and_a_wrong_value_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "application.yaml").write_text("shop:\n  size: abc\nshpo:\n  size: 1\n")
    with pytest.raises(ConfigSourceError) as caught:
        await Application("a", providers=[Shop()]).start()
    text = str(caught.value)
    assert "shop.size" in text
    assert "shpo" in text
    assert "did you mean" in text


async def test_only_one_of_key_and_model_is_refused() -> None:
    class Half(Provider):
        config_key = "half"

    with pytest.raises(ConfigurationError, match='"half" has config_key but no config_model'):
        await Application("a", providers=[Half]).start()


async def test_debug_in_production_is_refused() -> None:
    config = LexigramConfig.from_dict({"debug": True, "env": "production"})
    with pytest.raises(ConfigurationError, match="debug"):
        await Application("a", config).start()


async def test_the_configuration_is_injectable() -> None:
    config = LexigramConfig(app_name="shop")
    async with Application("a", config) as app:
        assert app.container.get(LexigramConfig).app_name == "shop"
