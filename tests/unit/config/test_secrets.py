"""No secret is ever shown: not by repr, not by to_safe_dict, not by errors, not in text."""

import pickle
import traceback
from typing import Any, ClassVar

import pytest
from attrs import field, frozen
from attrs.validators import matches_re, max_len
from hypothesis import assume, given
from hypothesis import strategies as st

from lexigram.config import (
    BaseConfig,
    ConfigSourceError,
    LexigramConfig,
    SecretStr,
    explain_values,
    load_config,
    redact_text,
    secret,
)
from lexigram.config.redact import MAX_TEXT_LENGTH, is_secret_name


@frozen(kw_only=True)
class Vault(BaseConfig):
    config_section: ClassVar[str] = "vault"
    url: str = ""
    password: str = ""
    pin: str = field(default="", metadata=secret("A secret that only its mark tells."))
    wrapped: SecretStr = field(default=SecretStr(""))
    many: dict[str, str] = field(factory=dict)
    headers: list[dict[str, str]] = field(factory=list)
    checked: str = field(default="x", metadata=secret(), validator=[max_len(1), matches_re("x")])
    number: int = 0
    plain: str = ""


# Distinct enough not to be part of our own words, with everything that needs quoting.
secrets = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=4, max_size=20
).map(lambda text: f"zQ{text}Zq")


def everything_shown(config: LexigramConfig) -> str:
    vault = config.sections["vault"]
    own = [vault, repr(vault)] if isinstance(vault, Vault) else []
    return "\n".join(map(str, [config, *own, config.to_safe_dict(), explain_values(config)]))


@given(secrets)
def test_no_secret_is_shown_by_a_configuration(value):
    by_name_or_shape = {
        "url": f"redis://user:{value}@host/0",
        "password": value,
        "many": {"api_key": value, "DB_PASSWORD": value},
        "headers": [{"Authorization": value}],
    }
    by_mark = {"pin": value, "wrapped": value}
    raw = LexigramConfig.from_dict({"vault": by_name_or_shape})
    bound = LexigramConfig.from_dict({"vault": by_name_or_shape | by_mark})
    for config in (raw, bound.bind_sections({"vault": Vault})):
        shown = everything_shown(config)
        assert value not in shown
        assert repr(value)[1:-1] not in shown


@given(secrets)
def test_no_secret_is_shown_by_an_error(value):
    data: dict[str, Any] = {
        "url": [f"redis://user:{value}@host/0"],
        "number": f"redis://user:{value}@host/0",
        "password": [value],
        "passwort": value,
        "pin": {value: value},
        "wrapped": 5,
        "many": {"token": [value]},
        "headers": value,
        "checked": value,
    }
    with pytest.raises(ConfigSourceError) as caught:
        LexigramConfig.from_dict({"vault": data}).get_section("vault", Vault)
    error = caught.value
    assert len(error.problems) == len(data)
    shown = "".join(
        [str(error), repr(error), str(error.to_dict()), *traceback.format_exception(error)]
    )
    assert value not in shown
    assert repr(value)[1:-1] not in shown


@given(secrets)
def test_text_from_a_variable_with_a_secret_name_stays_hidden(tmp_path_factory, value):
    assume("\n" not in value)
    folder = tmp_path_factory.mktemp("config")
    (folder / "application.yaml").write_text("vault:\n  plain: ${DB_PASSWORD}\n", encoding="utf-8")
    env = {"DB_PASSWORD": value}
    config = load_config(base_path=folder, env=env, sections={"vault": Vault})
    assert config.sections["vault"].plain == value
    assert value not in everything_shown(config)
    raw = load_config(base_path=folder, env=env)
    assert value not in everything_shown(raw)


def test_a_failed_check_of_a_secret_does_not_repeat_its_value():
    with pytest.raises(ConfigSourceError) as caught:
        Vault.from_dict({"checked": "hunter2"})
    [problem] = caught.value.problems
    assert str(problem) == "given value  vault.checked = ***\n    is not accepted"


def test_secret_text_gives_its_value_only_when_asked():
    value = SecretStr("hunter2")
    assert (str(value), repr(value), f"{value}") == ("***", "SecretStr('***')", "***")
    assert value.reveal() == "hunter2"
    assert value == SecretStr("hunter2")
    assert value != "hunter2"
    assert hash(value) == hash(SecretStr("hunter2"))
    assert not SecretStr("")
    assert str(SecretStr("")) == ""
    assert pickle.loads(pickle.dumps(value)) == value


def test_unset_secrets_are_seen_to_be_unset():
    safe = Vault().to_safe_dict()
    assert (safe["password"], safe["wrapped"]) == ("", "")


def test_a_subclass_with_a_repr_of_its_own_keeps_it():
    @frozen(kw_only=True)
    class Own(BaseConfig):
        password: str = "x"

        def __repr__(self) -> str:
            return "own"

    @frozen(kw_only=True)
    class Below(Vault):
        more: int = 1

    assert repr(Own()) == "own"
    assert "hunter2" not in repr(Below(password="hunter2"))


@pytest.mark.parametrize(
    "name",
    [
        "password", "DB_PASSWORD", "dbPassword", "passwd", "pwd", "db_pw", "secret", "client_secret",
        "secrets", "token", "auth_token", "accessToken", "api_key", "apiKey", "API-KEY", "private_key",
        "access_key", "SharedAccessKey", "AccountKey", "credentials", "Authorization", "cookie",
        "passphrase", "sig",
    ],
)  # fmt: skip
def test_secret_names(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "token_limit", "tokens", "bypass", "key", "keys", "primary_key", "path", "", "compass"],
)  # fmt: skip
def test_names_that_are_not_secret(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://u:p@h:1/0 and amqp://p@h", "redis://***@h:1/0 and amqp://***@h"),
        ("postgresql://u:p/ss@w@h/db?x=1", "postgresql://***@h/db?x=1"),
        ("https://host/path?token=abc&x=1", "https://host/path?token=***&x=1"),
        ("https://host/@user", "https://host/@user"),
        ("password=hunter2 user=me", "password=*** user=me"),
        ("x: password = 'a b', y", "x: password = ***, y"),
        ('{"password": "a\\"b", "n": 1}', '{"password": ***, "n": 1}'),
        ("Endpoint=sb://h/;SharedAccessKey=a+b=;X=1", "Endpoint=sb://h/;SharedAccessKey=***;X=1"),
        ("Authorization: Bearer abc.def-1 next", "Authorization: *** next"),
        ("got Bearer abc.def-1", "got Bearer ***"),
        ("the token expired, max_tokens=100", "the token expired, max_tokens=100"),
        ("plain text: nothing=here", "plain text: nothing=here"),
        ("password=", "password="),
    ],
)
def test_secrets_in_running_text(text, shown):
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2" + "x" * 100_000 + "@host/0",
        'password="hunter2 hunter2 ' + "x" * 100_000 + '"',
        "password='hunter2 hunter2 \\" + "x" * 100_000 + "'",
        "see https://host/path redis://hunter2/" + "x" * 100_000 + "@host",
    ],
)
def test_a_text_that_is_too_long_is_truncated_with_a_note_and_shows_no_part_of_a_secret(text):
    shown = redact_text(text)
    assert "hunter2" not in shown
    assert shown.endswith(f"… (truncated: {len(text)} characters)")


def test_a_text_of_the_greatest_length_is_shown_in_full():
    text = "x y" * (MAX_TEXT_LENGTH // 3)
    assert redact_text(text) == text
    assert redact_text("x" * (MAX_TEXT_LENGTH + 1)).startswith("x" * MAX_TEXT_LENGTH + "…")
