"""A variable with a wrong name is an error where a setting was meant, else it is logged and ignored."""

import logging
from collections.abc import Mapping
from typing import ClassVar

import pytest
from attrs import field, frozen

from lexigram.app import Application
from lexigram.config import BaseConfig, ConfigSourceError, LexigramConfig, load_config, sources
from lexigram.di import Provider


@frozen(kw_only=True)
class Relay(BaseConfig):
    name: str = "a"
    port: int = 25


@frozen(kw_only=True)
class Mail(BaseConfig):
    config_section: ClassVar[str] = "mail"
    env_aliases: ClassVar[Mapping[str, str]] = {"MAIL_HOST": "host", "LEX_SMTP": "host"}

    host: str = "localhost"
    relay: Relay = field(factory=Relay)
    relays: tuple[Relay, ...] = ()
    by_name: Mapping[str, Relay] = field(factory=dict)


class MailProvider(Provider):
    config_key = "mail"
    config_model = Mail


TYPOS = {
    "LEX_MAIL__HOTS": "LEX_MAIL__HOST",
    "LEX_MIAL__HOST": "LEX_MAIL__HOST",
    "LEX_MAIL_HOST": "LEX_MAIL__HOST",
    "LEX_MIAL_HOST": "LEX_MAIL__HOST",
    "LEX_MAIL__RELAY_PORT": "LEX_MAIL__RELAY__PORT",
    "LEX_MAIL__RELAY__PROT": "LEX_MAIL__RELAY__PORT",
    "LEX_MAIL__RELAYS__0__PROT": "LEX_MAIL__RELAYS__0__PORT",
    "LEX_MAIL__BY_NAME__X__PROT": "LEX_MAIL__BY_NAME__X__PORT",
    "LEX_MAIL__RELAI__PORT": "LEX_MAIL__RELAY__PORT",
    "LEX_LOGING__LEVEL": "LEX_LOGGING__LEVEL",
    "LEX_DEBGU": "LEX_DEBUG",
    "LEX_PROFIL": "LEX_PROFILE",
    "LEX_APP__NAME": "LEX_APP_NAME",
}
FOREIGN = (
    *("LEX_ZZZ", "LEX_ZZZ__X", "LEX_ZZZ__X__0", "LEX_9", "LEX_", "LEX___", "LEX_ZZZ__"),
    *("LEX_MAIL__QQQ", "LEX_MAIL__RELAY__QQQ", "LEX_MAIL__RELAYS__0__QQQ", "LEX_MAIL__QQQ__QQQ"),
    *("LEX_MAIL__BY_NAME__X__QQQ", "LEX_LOGGING__QQQ"),
)


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_logged", set())
    return lambda **env: load_config(base_path=tmp_path, env=env, sections={"mail": Mail})


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(("variable", "meant"), TYPOS.items(), ids=str)
def test_a_typo_is_an_error_with_the_variable_that_was_meant(load, warnings, variable, meant):
    with pytest.raises(ConfigSourceError) as raised:
        load(**{variable: "1"})
    (problem,) = raised.value.problems
    assert (problem.source, problem.suggestion) == (variable, meant)
    assert warnings() == []


def test_a_section_alone_has_its_typos_and_foreign_variables_too(monkeypatch, warnings):
    monkeypatch.setattr(sources, "_logged", set())
    with pytest.raises(ConfigSourceError, match="did you mean: LEX_MAIL__HOST"):
        Mail.from_env({"LEX_MAIL__HOTS": "x"})
    assert Mail.from_env({"LEX_MAIL__QQQ": "x", "LEX_MAIL__HOST": "h"}).host == "h"
    assert warnings() == ["unknown variables are ignored: LEX_MAIL__QQQ"]


@pytest.mark.parametrize("variable", FOREIGN)
def test_what_resembles_no_setting_is_logged_and_ignored(load, warnings, variable):
    config = load(**{variable: "hunter2", "LEX_MAIL__HOST": "smtp"})
    assert config.sections["mail"].host == "smtp"
    assert [*config.sections] == ["mail"]
    assert warnings() == [f"unknown variables are ignored: {variable}"]


def test_all_of_them_are_in_one_line_and_logged_once(load, warnings):
    many = dict.fromkeys(FOREIGN[:5], "hunter2")
    load(**many)
    load(**many)
    assert warnings() == [f"unknown variables are ignored: {', '.join(sorted(many))}"]
    load(**many, LEX_QQQ="x")
    assert warnings()[1:] == ["unknown variables are ignored: LEX_QQQ"]


def test_a_foreign_variable_hides_no_error_and_no_value(load):
    with pytest.raises(ConfigSourceError) as raised:
        load(LEX_ZZZ="1", LEX_MAIL__QQQ="2", LEX_MAIL__RELAY__PORT="many", LEX_MAIL__HOTS="x")
    assert [problem.source for problem in raised.value.problems] == [
        "LEX_MAIL__HOTS",
        "LEX_MAIL__RELAY__PORT",
    ]
    config = load(LEX_MAIL__RELAYS__0__QQQ="1", LEX_MAIL__RELAYS__0__NAME="b")
    assert config.sections["mail"].relays == (Relay(name="b"),)


def test_an_unknown_key_of_a_file_or_of_json_is_an_error_all_the_same(load, tmp_path):
    with pytest.raises(ConfigSourceError, match="unknown key"):
        load(LEX_MAIL='{"qqq": 1}')
    (tmp_path / "application.yaml").write_text("mail: {qqq: 1}\n")
    with pytest.raises(ConfigSourceError, match="application.yaml:1  mail.qqq"):
        load()
    (tmp_path / "application.yaml").write_text("mail: {qqq: {y: 1}}\n")
    with pytest.raises(ConfigSourceError, match="unknown key"):
        load(LEX_MAIL__QQQ__X="1")


@pytest.mark.parametrize("alias", ["MAIL_HOST", "LEX_SMTP"])
def test_an_alias_is_no_unknown_variable(load, warnings, alias):
    assert load(**{alias: "smtp"}).sections["mail"].host == "smtp"
    assert warnings() == []


async def test_an_application_logs_them_at_its_start(load, warnings, tmp_path):
    given = load_config(base_path=tmp_path, env={"LEX_ZZZ__X": "1", "LEX_MAIL__QQQ": "1"})
    assert warnings() == []
    async with Application("shop", providers=[MailProvider()], config=given):
        assert warnings() == ["unknown variables are ignored: LEX_MAIL__QQQ, LEX_ZZZ__X"]


def test_they_are_warnings_of_the_environment(load):
    (issue,) = load(LEX_ZZZ="hunter2").validate_for_environment()
    assert (issue.field, issue.severity) == ("LEX_ZZZ", "warning")
    assert "hunter2" not in str(issue)
    assert LexigramConfig().validate_for_environment() == []
