"""Sections belong to parts of an application; what nobody reads is refused."""

from typing import ClassVar

import pytest
from attrs import field, frozen

from lexigram.config import (
    BaseConfig,
    ConfigIssue,
    ConfigSourceError,
    Environment,
    LexigramConfig,
    LoggingConfig,
    load_config,
)


@frozen(kw_only=True)
class Redis(BaseConfig):
    url: str = "redis://localhost"
    size: int = 1


@frozen(kw_only=True)
class Mail(BaseConfig):
    config_section: ClassVar[str] = "mail"
    host: str = "localhost"
    relay: str = field(default="", metadata={"secret": True})

    def validate_for_environment(self, env: Environment) -> list[ConfigIssue]:
        if env is Environment.PRODUCTION and self.host == "localhost":
            return [ConfigIssue(field="host", message="is this machine", severity="warning")]
        return []


@frozen(kw_only=True)
class Strict(BaseConfig):
    needed: str


def test_a_section_is_structured_when_it_is_asked_for():
    config = LexigramConfig.from_dict({"mail": {"host": "smtp"}})
    assert config.get_section("mail", Mail) == Mail(host="smtp")


def test_an_absent_section_is_the_defaults_of_its_class():
    assert LexigramConfig().get_section("mail", Mail) == Mail()
    assert LexigramConfig().get_section("queue.redis", Redis) == Redis()
    with pytest.raises(ConfigSourceError, match=r"default  strict.needed\n    required: str"):
        LexigramConfig().get_section("strict", Strict)


def test_dotted_names_reach_a_part_of_a_section():
    config = LexigramConfig.from_dict({"queue": {"redis": {"size": 5}}})
    assert config.get_section("queue.redis", Redis).size == 5


def test_sections_the_root_keeps_for_itself_are_found_too():
    config = LexigramConfig(logging=LoggingConfig(level="DEBUG"))
    assert config.get_section("logging", LoggingConfig) is config.logging


def test_an_explicit_object_beats_all(tmp_path):
    mail = Mail(host="explicit")
    assert LexigramConfig(sections={"mail": mail}).get_section("mail", Mail) is mail


def test_a_section_error_names_file_and_line(tmp_path):
    (tmp_path / "application.yaml").write_text("mail:\n  hst: smtp\n")
    config = load_config(base_path=tmp_path, env={"LEX_MAIL__HOSTT": "x"})
    with pytest.raises(ConfigSourceError) as caught:
        config.get_section("mail", Mail)
    assert [(p.source, p.key, p.suggestion) for p in caught.value.problems] == [
        (f"{tmp_path}/application.yaml:2", "mail.hst", "host"),
        ("LEX_MAIL__HOSTT", "mail.hostt", "LEX_MAIL__HOST"),
    ]


def test_sections_nobody_claims_are_refused_with_the_nearest_name(tmp_path):
    (tmp_path / "application.yaml").write_text("mial: {host: x}\nmail: {host: x}\nzzz: {x: 1}\n")
    env = {"LEX_LOGING__LEVEL": "DEBUG"}
    config = load_config(base_path=tmp_path, env=env)
    with pytest.raises(ConfigSourceError) as caught:
        config.check_sections(["mail"])
    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "[LEX_ERR_CFG_003] 3 problems in the configuration\n"
        "\n"
        "application.yaml:1  mial = {...}\n"
        "    unknown key\n"
        "    did you mean: mail\n"
        "\n"
        "application.yaml:3  zzz = {...}\n"
        "    unknown key; known here: app, app_name, debug, env, health, logging, mail\n"
        "\n"
        "LEX_LOGING__LEVEL  loging = {...}\n"
        "    unknown key\n"
        "    did you mean: LEX_LOGGING__LEVEL"
    )


def test_a_dotted_claim_covers_its_part_only():
    config = LexigramConfig.from_dict({"queue": {"redis": {"size": 5}, "rdis": {}}})
    with pytest.raises(ConfigSourceError) as caught:
        config.check_sections(["queue.redis"])
    assert [(p.key, p.suggestion) for p in caught.value.problems] == [("queue.rdis", "redis")]
    config.check_sections(["queue"])


def test_binding_structures_all_sections_and_tells_all_problems():
    config = LexigramConfig.from_dict({"mail": {"host": 1}, "redis": {"size": "x"}, "typo": {}})
    with pytest.raises(ConfigSourceError) as caught:
        config.bind_sections({"mail": Mail, "redis": Redis})
    assert [p.key for p in caught.value.problems] == ["typo", "mail.host", "redis.size"]


def test_bound_sections_are_objects_with_their_defaults():
    config = LexigramConfig.from_dict({"mail": {"relay": "hunter2"}})
    bound = config.bind_sections({"mail": Mail, "redis": Redis, "queue.redis": Redis})
    assert bound.get_section("mail", Mail) is bound.sections["mail"]
    assert bound.sections["redis"] == Redis()
    assert bound.to_safe_dict()["mail"] == {"host": "localhost", "relay": "***"}


def test_loading_with_section_classes_binds_them(tmp_path):
    config = load_config(
        base_path=tmp_path, env={"LEX_MAIL__HOST": "smtp"}, sections={"mail": Mail}
    )
    assert config.sections == {"mail": Mail(host="smtp")}
    assert config.trace.source_of("mail.host") == "LEX_MAIL__HOST"


def test_a_whole_section_may_come_as_json_in_one_variable(tmp_path):
    config = load_config(base_path=tmp_path, env={"LEX_MAIL": '{"host": "smtp"}'})
    assert config.get_section("mail", Mail).host == "smtp"
    assert config.trace.source_of("mail.host") == "LEX_MAIL"


def test_a_lone_value_at_the_root_is_no_section(tmp_path):
    with pytest.raises(ConfigSourceError, match="debgu = 'true'\n    unknown key"):
        load_config(base_path=tmp_path, env={"LEX_DEBGU": "true"})
    with pytest.raises(ConfigSourceError, match="did you mean: debug"):
        LexigramConfig.from_dict({"debgu": True})


def test_an_application_may_add_its_own_root_settings(tmp_path):
    @frozen(kw_only=True)
    class ShopConfig(LexigramConfig):
        currency: str = "EUR"

    config = load_config(ShopConfig, base_path=tmp_path, env={"LEX_CURRENCY": "CHF"})
    assert config.currency == "CHF"
    config.check_sections([])


def test_debug_in_production_is_an_error():
    config = LexigramConfig(debug=True, env=Environment.PRODUCTION)
    assert config.validate_for_environment() == [
        ConfigIssue(
            field="debug",
            message="must not be on in production",
            severity="error",
            suggestion="set debug: false (or LEX_DEBUG=false)",
        )
    ]
    assert LexigramConfig(debug=True).validate_for_environment() == []
    assert LexigramConfig(debug=True).validate_for_environment(Environment.PRODUCTION) != []
    assert LexigramConfig(env=Environment.PRODUCTION).validate_for_environment() == []


def test_bound_sections_are_checked_for_the_environment_too():
    config = LexigramConfig(env=Environment.PRODUCTION).bind_sections({"mail": Mail})
    [issue] = config.validate_for_environment()
    assert str(issue) == "mail.host: is this machine"
    assert issue.severity == "warning"
