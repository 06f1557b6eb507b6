"""Where values come from, which source wins, and how text becomes a value."""

import os
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import field, frozen

from lexigram.config import (
    BaseConfig,
    ConfigSourceError,
    ConfigurationError,
    Environment,
    LexigramConfig,
    LoggingConfig,
    SecretStr,
    load_config,
)


class Colour(Enum):
    RED = 1
    GREEN = 2


@frozen(kw_only=True)
class Broker(BaseConfig):
    name: str
    url: str | None = None
    weight: int = 1


@frozen(kw_only=True)
class Everything(BaseConfig):
    config_section: ClassVar[str] = "all"
    flag: bool = False
    count: int = 0
    ratio: float = 0.0
    text: str = ""
    maybe: int | None = 7
    either: int | str = 0
    path: Path = Path()
    colour: Colour = Colour.RED
    secret_key: SecretStr = field(default=SecretStr(""))
    names: list[str] = field(factory=list)
    numbers: tuple[int, ...] = ()
    unique: frozenset[str] = frozenset()
    table: dict[str, float] = field(factory=dict)
    by_port: dict[int, str] = field(factory=dict)
    brokers: list[Broker] = field(factory=list)
    main: Broker | None = None
    anything: Any = None


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        (folder / f"{name.replace('_', '.')}.yaml").write_text(content)
    return folder


def test_each_source_wins_over_the_one_before(tmp_path):
    write(
        tmp_path,
        application="app: {boot_timeout: 1, shutdown_timeout: 1, health_check_timeout: 1}\n",
        application_prod="app: {shutdown_timeout: 2, health_check_timeout: 2}\n",
    )
    env = {"LEX_PROFILE": "prod", "LEX_APP__HEALTH_CHECK_TIMEOUT": "3"}

    config = load_config(base_path=tmp_path, env=env)

    assert config.app_name == "lexigram-app"
    assert config.app.boot_timeout == 1
    assert config.app.shutdown_timeout == 2
    assert config.app.health_check_timeout == 3
    assert [
        config.trace.source_of(key)
        for key in (
            "app_name",
            "app.boot_timeout",
            "app.shutdown_timeout",
            "app.health_check_timeout",
        )
    ] == [
        "default",
        f"{tmp_path}/application.yaml:1",
        f"{tmp_path}/application.prod.yaml:1",
        "LEX_APP__HEALTH_CHECK_TIMEOUT",
    ]


def test_a_profile_given_by_the_caller_wins_over_the_variable(tmp_path):
    write(tmp_path, application_one="app_name: one\n", application_two="app_name: two\n")
    config = load_config(base_path=tmp_path, profile="one", env={"LEX_PROFILE": "two"})
    assert config.app_name == "one"


def test_without_any_source_there_are_defaults(tmp_path):
    config = load_config(base_path=tmp_path, env={})
    assert config == LexigramConfig()
    assert (config.app.shutdown_timeout, config.app.boot_timeout) == (30.0, 60.0)
    assert config.app.health_check_timeout == 5.0
    assert config.env is Environment.DEVELOPMENT


def test_the_process_environment_is_read_when_no_other_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("LEX_APP_NAME", "from-process")
    assert load_config(base_path=tmp_path).app_name == "from-process"
    assert "LEX_APP_NAME" in os.environ
    assert load_config(base_path=tmp_path, env={}).app_name == "lexigram-app"


def test_empty_files_and_empty_sections_are_fine(tmp_path):
    write(tmp_path, application="app:\n  # nothing yet\nlogging:\nmail:\n")
    assert load_config(base_path=tmp_path, env={}) == LexigramConfig(sections={"mail": {}})
    write(tmp_path, application="# nothing\n")
    assert load_config(base_path=tmp_path, env={}) == LexigramConfig()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("FLAG", "on", True),
        ("FLAG", "False", False),
        ("COUNT", " -12 ", -12),
        ("RATIO", "1e3", 1000.0),
        ("TEXT", "12", "12"),
        ("TEXT", "", ""),
        ("MAYBE", "", None),
        ("MAYBE", "8", 8),
        ("EITHER", "8", 8),
        ("EITHER", "eight", "eight"),
        ("PATH", "/tmp/x", Path("/tmp/x")),
        ("COLOUR", "2", Colour.GREEN),
        ("SECRET_KEY", "s", SecretStr("s")),
        ("NAMES", "a, b", ["a", "b"]),
        ("NAMES", '["a,b", "c"]', ["a,b", "c"]),
        ("NAMES", "", []),
        ("NUMBERS", "1,2", (1, 2)),
        ("UNIQUE", "a,a", frozenset({"a"})),
        ("TABLE", '{"x": 1}', {"x": 1.0}),
        ("TABLE__X", "1.5", {"x": 1.5}),
        ("BROKERS", '[{"name": "a"}]', [Broker(name="a")]),
        ("BROKERS__0__NAME", "a", [Broker(name="a")]),
        ("MAIN__NAME", "a", Broker(name="a")),
        ("MAIN", '{"name": "a"}', Broker(name="a")),
        ("ANYTHING", "x", "x"),
    ],
)
def test_a_variable_is_read_as_the_type_of_its_setting(name, text, value):
    config = Everything.from_env({f"LEX_ALL__{name}": text, "LEX_OTHER__X": "ignored"})
    found = getattr(config, name.split("__")[0].lower())
    assert found == value
    assert type(found) is type(value)


def test_variables_reach_single_items_of_a_list_in_a_file(tmp_path):
    write(
        tmp_path,
        application="all:\n  brokers:\n    - {name: a, weight: 3}\n    - {name: b}\n",
    )
    env = {
        "LEX_ALL__BROKERS__0__URL": "redis://a",
        "LEX_ALL__BROKERS__2__NAME": "c",
    }
    config = Everything.from_yaml(tmp_path / "application.yaml", env=env)
    assert config.brokers == [
        Broker(name="a", url="redis://a", weight=3),
        Broker(name="b"),
        Broker(name="c"),
    ]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("text: 'no'", "no"),
        ("text: no", "no"),
        ("flag: no", False),
        ("flag: On", True),
        ("text: 12:30", "12:30"),
        ("text: 2024-01-01", "2024-01-01"),
        ("text: 010", "010"),
        ("ratio: 1e3", 1000.0),
        ("ratio: .5", 0.5),
        ("count: 1_000", 1000),
        ("count: 0x10", 16),
        ("maybe: ~", None),
        ("by_port: {8080: web}", {8080: "web"}),
        ("table: {on: 1, null: 2}", {"on": 1.0, "null": 2.0}),
        ("colour: 2", Colour.GREEN),
    ],
)
def test_yaml_holds_no_surprises(tmp_path, line, value):
    write(tmp_path, application=f"all:\n  {line}\n")
    config = Everything.from_yaml(tmp_path / "application.yaml", env={})
    assert getattr(config, line.partition(":")[0]) == value


def test_yaml_merge_keys_and_aliases_work(tmp_path):
    write(
        tmp_path,
        application=(
            "all:\n"
            "  brokers:\n"
            "    - &base {name: a, weight: 3}\n"
            "    - {<<: *base, name: b}\n"
            "    - &both\n"
            "      <<: *base\n"
            "      name: c\n"
            "    - *both\n"
        ),
    )
    brokers = Everything.from_yaml(tmp_path / "application.yaml", env={}).brokers
    assert [(b.name, b.weight) for b in brokers] == [("a", 3), ("b", 3), ("c", 3), ("c", 3)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("text: ${HOST}", "db"),
        ("text: ${NOPE:fallback}", "fallback"),
        ("text: ${NOPE:}", ""),
        ("text: http://${HOST}:${PORT}/", "http://db:8080/"),
        ("text: $${HOST}", "${HOST}"),
        ("text: costs $5", "costs $5"),
        ("text: '${HOST} ${NOPE: }${ ${HOST'", "db  ${ ${HOST"),
        ("count: ${PORT}", 8080),
        ("count: ${NOPE:5}", 5),
        ("names: [a, '${HOST}']", ["a", "db"]),
        ("flag: ${NOPE:yes}", True),
    ],
)
def test_variables_are_filled_into_yaml(tmp_path, text, value):
    write(tmp_path, application=f"all:\n  {text}\n")
    env = {"HOST": "db", "PORT": "8080"}
    config = Everything.from_yaml(tmp_path / "application.yaml", env=env)
    assert getattr(config, text.partition(":")[0]) == value


def test_the_trace_names_the_variable_filled_into_yaml(tmp_path):
    write(tmp_path, application="app_name: ${NAME}\n")
    config = load_config(base_path=tmp_path, env={"NAME": "shop"})
    assert config.trace.source_of("app_name") == f"{tmp_path}/application.yaml:1 via NAME"


def test_only_the_own_section_of_a_file_counts_for_a_section_class(tmp_path):
    write(tmp_path, application="other: {x: '${NOPE}'}\nall: {count: 5}\n")
    assert Everything.from_yaml(tmp_path / "application.yaml", env={}).count == 5


def test_objects_given_in_code_are_taken_as_they_are():
    broker = Broker(name="a")
    config = Everything.from_dict({"main": broker, "brokers": [broker], "colour": Colour.GREEN})
    assert config.main is broker
    assert config.brokers[0] is broker
    assert config.colour is Colour.GREEN


def test_a_class_that_forgot_to_be_an_attrs_class_is_refused():
    class Forgotten(BaseConfig):
        host: str = "x"

    with pytest.raises(ConfigurationError, match="declares settings but is not an attrs class"):
        Forgotten.from_dict({})


def test_an_annotation_that_exists_for_type_checkers_only_is_refused_by_name():
    @frozen(kw_only=True)
    class Hidden(BaseConfig):
        value: "Decimal"  # noqa: F821 - the point of the test

    with pytest.raises(ConfigurationError, match="annotated with 'Decimal'"):
        Hidden.from_dict({})


def test_a_loaded_configuration_still_compares_with_one_made_in_code(tmp_path):
    write(tmp_path, application="logging: {level: DEBUG}\n")
    loaded = load_config(base_path=tmp_path, env={})
    assert loaded == LexigramConfig(logging=LoggingConfig(level="DEBUG"))


def test_from_dict_reads_no_variable(monkeypatch):
    monkeypatch.setenv("LEX_DEBUG", "true")
    assert LexigramConfig.from_dict({}).debug is False


def test_from_yaml_needs_its_file(tmp_path):
    with pytest.raises(ConfigSourceError, match="file not found"):
        LexigramConfig.from_yaml(tmp_path / "application.yaml", env={})
