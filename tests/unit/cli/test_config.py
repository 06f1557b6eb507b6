import json

import pytest

from lexigram.config import sources


@pytest.fixture
def settings(write):
    write(
        "application.yaml",
        """
        app_name: shop
        mail:
          host: mail.internal
          password: hunter2
        """,
    )


def test_every_setting_is_shown_with_its_source(lex, shop, settings, monkeypatch):
    monkeypatch.setenv("LEX_MAIL__PORT", "465")
    rows = {line.split()[0]: line.split() for line in lex("config", "show", shop).out.splitlines()}
    assert rows["app_name"] == ["app_name", "shop", "application.yaml:2"]
    assert rows["mail.host"] == ["mail.host", "mail.internal", "application.yaml:4"]
    assert rows["mail.port"] == ["mail.port", "465", "LEX_MAIL__PORT"]
    assert rows["debug"] == ["debug", "no", "default"]


def test_settings_as_json(lex, shop, settings):
    shown = {row["key"]: row for row in lex("config", "show", shop, "--json").data["settings"]}
    assert shown["debug"] == {"key": "debug", "value": False, "source": "default"}
    assert shown["mail.password"]["value"] == "***"


@pytest.mark.parametrize("arguments", [("show",), ("validate",), ("env",)])
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_secrets_never_appear(lex, shop, settings, monkeypatch, arguments, as_json, named):
    monkeypatch.setenv("LEX_MAIL__PASSWORD", "hunter3")
    given = [*arguments, *([shop] if named else []), *(["--json"] if as_json else [])]
    shown = lex("config", *given)
    assert shown.code == 0
    assert "hunter" not in shown.out + shown.err


def test_secrets_do_not_appear_in_problems_either(lex, shop, write):
    write("application.yaml", "mail:\n  passwrod: hunter2\n  password: [hunter3]\n")
    for flags in ([], ["--json"], ["--debug"]):
        failed = lex("config", "validate", shop, *flags)
        assert failed.code == 2
        assert "hunter" not in failed.out + failed.err


def test_all_problems_come_at_once_with_exit_code_2(lex, shop, write, monkeypatch):
    write("application.yaml", "debgu: true\nmail:\n  port: many\n  hots: x\n")
    monkeypatch.setenv("LEX_APP__BOOT_TIMEOUT", "-1")
    failed = lex("config", "validate", shop)
    assert failed.code == 2
    assert "4 problems in the configuration" in failed.err
    for part in (
        *("application.yaml:1  debgu", "did you mean: debug"),
        *("application.yaml:3  mail.port = 'many'", "application.yaml:4  mail.hots"),
        *("did you mean: host", "LEX_APP__BOOT_TIMEOUT"),
    ):
        assert part in failed.err


def test_problems_as_json_carry_source_key_value_and_suggestion(lex, shop, write):
    write("application.yaml", "mail:\n  hots: x\n")
    failed = lex("config", "validate", shop, "--json")
    assert failed.code == failed.data["exit_code"] == 2
    (problem,) = failed.data["error"]["details"]["problems"]
    assert problem["source"] == "application.yaml:2"
    assert problem["key"] == "mail.hots"
    assert problem["suggestion"] == "host"


@pytest.mark.parametrize("command", [("config", "show"), ("inspect", "providers")])
def test_wrong_settings_stop_other_commands_with_the_same_code(lex, shop, write, command):
    write("application.yaml", "mail:\n  hots: x\n")
    assert lex(*command, shop).code == 2


def test_a_missing_profile_file_is_a_problem(lex, monkeypatch):
    monkeypatch.setenv("LEX_PROFILE", "prod")
    failed = lex("config", "validate")
    assert failed.code == 2
    assert "application.prod.yaml" in failed.err


def test_a_setting_that_is_wrong_for_the_environment_fails_validation(lex, monkeypatch):
    monkeypatch.setenv("LEX_ENV", "production")
    monkeypatch.setenv("LEX_DEBUG", "true")
    failed = lex("config", "validate")
    assert failed.code == 2
    assert "must not be on in production" in failed.out
    data = lex("config", "validate", "--json").data
    assert data["valid"] is False
    assert data["issues"][0]["setting"] == "debug"


def test_a_valid_configuration_says_so(lex, shop, settings):
    assert lex("config", "validate", shop).out == "the configuration is valid for development\n"
    assert lex("config", "validate", shop, "--json").data == {
        "issues": [],
        "valid": True,
        "sections": ["root", "mail"],
    }


def test_without_an_application_sections_are_shown_as_they_are(lex, settings):
    assert "mail.internal" in lex("config", "show").out


def test_the_application_of_this_folder_is_used_by_default(lex, shop, write):
    write("pyproject.toml", '[tool.lexigram]\napp = "shop:app"\n')
    assert lex("config", "validate", "--json").data["sections"] == ["root", "mail"]


def test_settings_given_in_code_are_shown(lex, write):
    write(
        "given.py",
        """
        from lexigram.app import Application
        from lexigram.config import LexigramConfig
        app = Application("x", LexigramConfig(app_name="given"))
        """,
    )
    assert "given" in lex("config", "show", "given:app").out


def test_every_variable_is_listed(lex, shop):
    lines = lex("config", "env", shop).out.splitlines()
    rows = {line.split()[0]: line for line in lines}
    assert rows["LEX_MAIL__PORT"].split() == ["LEX_MAIL__PORT", "int", "25", "no"]
    assert rows["LEX_MAIL__PASSWORD"].split()[2:] == ["yes", "Of", "the", "mail", "account."]
    assert "LEX_PROFILE" in rows


def test_variables_as_json(lex, shop):
    rows = {row["variable"]: row for row in lex("config", "env", shop, "--json").data["variables"]}
    assert rows["LEX_MAIL__PORT"]["default"] == 25
    assert rows["LEX_MAIL__PASSWORD"]["secret"] is True


def test_a_variable_of_another_program_is_shown_as_ignored(lex, shop, monkeypatch, caplog):
    monkeypatch.setattr(sources, "_logged", set())
    monkeypatch.setenv("LEX_ZZZ__X", "hunter2")
    monkeypatch.setenv("LEX_MAIL__QQQ", "hunter2")
    shown = lex("config", "show", shop)
    assert shown.code == 0
    assert "zzz" not in shown.out
    assert "qqq" not in shown.out
    assert caplog.messages == ["unknown variables are ignored: LEX_MAIL__QQQ, LEX_ZZZ__X"]
    validated = lex("config", "validate", shop, "--json")
    assert validated.code == 0
    assert validated.data["valid"] is True
    assert [(one["setting"], one["severity"]) for one in validated.data["issues"]] == [
        ("LEX_MAIL__QQQ", "warning"),
        ("LEX_ZZZ__X", "warning"),
    ]
    assert len(caplog.messages) == 1
    checks = {one["check"]: one for one in lex("doctor", shop, "--json").data["checks"]}
    assert checks["configuration"]["status"] == "warning"
    assert "LEX_ZZZ__X is an unknown variable" in checks["configuration"]["message"]


def test_a_variable_with_a_typo_is_an_error_with_the_right_name(lex, shop, monkeypatch):
    monkeypatch.setenv("LEX_MIAL__HOST", "x")
    for command in (("config", "show"), ("config", "validate"), ("inspect", "health")):
        refused = lex(*command, shop)
        assert refused.code == 2
        assert "did you mean: LEX_MAIL__HOST" in refused.err


def test_a_variable_that_is_ignored_is_logged_in_the_format_of_the_command(lex, shop, monkeypatch):
    monkeypatch.setattr(sources, "_logged", set())
    monkeypatch.setenv("LEX_ZZZ", "hunter2")
    err = lex("inspect", "health", "shop:create", "--json").err
    (line,) = [json.loads(line) for line in err.splitlines()]
    assert (line["level"], line["message"]) == (
        "WARNING",
        "unknown variables are ignored: LEX_ZZZ",
    )
