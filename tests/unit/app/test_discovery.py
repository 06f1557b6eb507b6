"""Modules of installed packages join an application by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import anyio
import pytest

from lexigram.app import Application, AppStartupError, discovery
from lexigram.queue.config import QueueConfig
from lexigram.queue.module import QueueModule


def found_in(app: Application) -> QueueConfig:
    async def ask() -> QueueConfig:
        async with app:
            return app.container.get(QueueConfig)

    return anyio.run(ask)


def test_the_modules_of_installed_packages_are_added() -> None:
    app = Application("a")
    app.discover_modules()
    names = {node.name for node in app.modules}
    assert {"QueueModule", "WorkflowModule", "WorkersModule"} <= names
    assert found_in(app) == QueueConfig()


def test_names_choose_and_leave_out() -> None:
    only = Application("a")
    only.discover_modules(enabled=["queue"])
    assert [node.name for node in only.modules] == ["QueueModule", "app"]
    without = Application("a")
    without.discover_modules(disabled=["queue"])
    assert "QueueModule" not in {node.name for node in without.modules}


def test_a_module_configured_by_hand_stays_as_it_is() -> None:
    config = QueueConfig()
    app = Application("a", modules=[QueueModule.configure(config)])
    app.discover_modules(enabled=["queue"])
    assert found_in(app) is config


def test_a_name_nobody_offers_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(AppStartupError, match=r'offers a module "quue" \(did you mean "queue"'):
        Application("a").discover_modules(enabled=["quue"])


def test_a_module_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "no_such_package.module:M", discovery.MODULES_GROUP)
    monkeypatch.setattr(discovery, "entry_points", lambda group: EntryPoints([broken]))
    with pytest.raises(AppStartupError, match='module "broken" of an installed package cannot be'):
        Application("a").discover_modules()
