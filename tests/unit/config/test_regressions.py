"""Defects 7, 8 and 9 of the line before this one (spec/core-api.md), each as a test."""

import ast
import importlib
import importlib.metadata
import logging
import threading
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import anyio
import pytest

import lexigram.errors
from lexigram import clock
from lexigram.config import ConfigSourceError, LexigramConfig, load_config
from lexigram.contracts.core.clock import ClockProtocol
from lexigram.contracts.core.errors import ConfigurationError, LexigramError

ROOT = Path(__file__).resolve().parents[3]


class StoppedClock:
    def __init__(self, year: int) -> None:
        self.year = year

    def now(self) -> datetime:
        return datetime(self.year, 1, 1, tzinfo=UTC)

    def timestamp(self) -> float:
        return self.now().timestamp()

    def monotonic(self) -> float:
        return float(self.year)


@pytest.fixture(autouse=True)
def _same_clock_afterwards():
    before = clock.current()
    yield
    clock.install(before)


# --- 7: "process-wide" install() only set a ContextVar ---


async def test_a_clock_installed_in_a_child_task_is_visible_to_all():
    seen_by_sibling: list[int] = []
    installed = anyio.Event()

    async def boot() -> None:
        clock.install(StoppedClock(1999))
        installed.set()

    async def sibling() -> None:
        await installed.wait()
        seen_by_sibling.append(clock.now().year)

    async with anyio.create_task_group() as group:
        group.start_soon(sibling)
        group.start_soon(boot)
    assert seen_by_sibling == [1999]
    assert clock.now().year == 1999
    assert await anyio.to_thread.run_sync(lambda: clock.now().year) == 1999


def test_a_clock_in_use_is_visible_to_other_threads_and_gone_afterwards():
    seen: list[float] = []
    with clock.use(StoppedClock(2001)) as used:
        assert clock.current() is used
        thread = threading.Thread(target=lambda: seen.append(clock.monotonic()))
        thread.start()
        thread.join()
        assert clock.timestamp() == used.timestamp()
    assert seen == [2001.0]
    assert isinstance(clock.current(), clock.SystemClock)


def test_blocks_that_end_in_any_order_leave_no_stale_clock():
    first, second = clock.use(StoppedClock(1)), clock.use(StoppedClock(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert clock.now().year == 2
    clock.install(StoppedClock(3))
    assert clock.now().year == 2
    second.__exit__(None, None, None)
    assert clock.now().year == 3


def test_the_system_clock_keeps_the_contract():
    system: ClockProtocol = clock.SystemClock()
    assert isinstance(system, ClockProtocol)
    assert system.now().tzinfo is UTC
    assert abs(system.timestamp() - system.now().timestamp()) < 60
    assert system.monotonic() <= system.monotonic()


# --- 8: config accepted nearly anything and had side effects ---


def test_a_number_setting_refuses_text_that_is_no_number(tmp_path):
    env = {"LEX_APP__BOOT_TIMEOUT": "abc"}
    with pytest.raises(ConfigSourceError, match=r"app\.boot_timeout = 'abc'\n    expected float"):
        load_config(base_path=tmp_path, env=env)
    (tmp_path / "application.yaml").write_text("app:\n  boot_timeout: abc\n")
    with pytest.raises(ConfigSourceError, match=r"application\.yaml:2  app\.boot_timeout = 'abc'"):
        load_config(base_path=tmp_path, env={})


def test_typing_errors_at_the_root_are_found(tmp_path):
    (tmp_path / "application.yaml").write_text("debgu: true\nloging: {level: DEBUG}\n")
    with pytest.raises(ConfigSourceError) as caught:
        load_config(base_path=tmp_path, env={"LEX_EVN": "test"}, sections={})
    assert [(p.key, p.suggestion) for p in caught.value.problems] == [
        ("debgu", "debug"),
        ("evn", "LEX_ENV"),
        ("loging", "logging"),
    ]


def test_a_missing_profile_file_is_not_ignored(tmp_path):
    (tmp_path / "application.yaml").write_text("debug: true\n")
    with pytest.raises(ConfigSourceError, match="LEX_PROFILE asks for the profile 'staging'"):
        load_config(base_path=tmp_path, env={"LEX_PROFILE": "staging"})
    with pytest.raises(ConfigSourceError, match="the caller asks for the profile 'staging'"):
        load_config(base_path=tmp_path, profile="staging", env={})


def test_yaml_is_a_declared_dependency():
    needed = importlib.metadata.requires("lexigram") or []
    assert any(requirement.lower().startswith("pyyaml") for requirement in needed)


def test_making_a_configuration_reads_no_folder_and_leaves_logging_alone(tmp_path, monkeypatch):
    (tmp_path / "application.yaml").write_text("debug: true\nlogging: {level: DEBUG}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEX_APP_NAME", "from-the-environment")
    root = logging.getLogger()
    before = (root.level, [*root.handlers])
    assert LexigramConfig() == LexigramConfig(app_name="lexigram-app", debug=False)
    load_config()
    assert (root.level, [*root.handlers]) == before


# --- 9: two classes for one thing ---


def test_there_is_one_configuration_error_and_it_catches_what_is_raised():
    assert lexigram.errors.ConfigurationError is ConfigurationError
    assert importlib.import_module("lexigram.config").ConfigurationError is ConfigurationError
    with pytest.raises(ConfigurationError):
        LexigramConfig.from_dict({"debgu": True})


def test_every_code_has_one_class():
    classes = list(_all_error_classes())
    by_code: dict[str, list[str]] = {}
    for name, code in classes:
        by_code.setdefault(code, []).append(name)
    assert {code: names for code, names in by_code.items() if len(names) > 1} == {}
    names = [name for name, _ in classes]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_lexigram_errors_has_every_error_class_of_the_core():
    homes = ("app", "config", "di", "contracts/core", "contracts/events")
    expected = {name for name, _ in _all_error_classes(homes)}
    assert expected - set(lexigram.errors.__all__) == set()
    for name in lexigram.errors.__all__:
        error = getattr(lexigram.errors, name)
        assert issubclass(error, LexigramError)
        assert error is getattr(importlib.import_module(error.__module__), name)


def test_there_is_one_clock_of_each_kind():
    kinds = ("SystemClock", "FakeClock", "FixedClock")
    found = [name for _, name, _ in _classes() if name in kinds]
    assert sorted(set(found)) == sorted(found)
    assert "SystemClock" in found


def _all_error_classes(homes: tuple[str, ...] = ("",)):
    """Name and code of every class in the source that sets a code of its own."""
    for inside, name, code in _classes():
        if code is not None and inside.startswith(homes):
            yield name, code


@cache  # to parse every file takes three seconds
def _classes() -> list[tuple[str, str, str | None]]:
    """File, name and error code of every class in the source."""
    return [
        (path.as_posix().rpartition("src/lexigram/")[2], node.name, _code(node))
        for folder in sorted(ROOT.glob("lexigram*/src"))
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


def _code(node: ast.ClassDef) -> str | None:
    for line in node.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else None
        target = line.target if isinstance(line, ast.AnnAssign) else target
        if isinstance(target, ast.Name) and target.id == "code":
            value = getattr(line, "value", None)
            if isinstance(value, ast.Constant) and str(value.value).startswith("LEX_ERR_"):
                return str(value.value)
    return None
