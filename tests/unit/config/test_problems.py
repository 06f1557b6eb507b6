"""The exact text of every kind of problem, and that all of them come at once."""

from contextlib import suppress
from typing import Annotated, ClassVar, Literal

import pytest
from attrs import field, frozen
from attrs.validators import ge, in_, le
from hypothesis import given
from hypothesis import strategies as st

from lexigram.config import BaseConfig, ConfigSourceError, LexigramConfig, SecretStr, load_config


@frozen(kw_only=True)
class Server(BaseConfig):
    name: str
    port: int = field(default=80, validator=[ge(1), le(65535)])
    mode: Literal["fast", "safe"] = "safe"
    ratio: float | None = None
    tags: list[str] = field(factory=list)
    pair: tuple[int, int] = (0, 0)
    limits: dict[str, int] = field(factory=dict)
    password: str = ""


@frozen(kw_only=True)
class Farm(BaseConfig):
    config_section: ClassVar[str] = "farm"
    servers: list[Server] = field(factory=list)
    size: Annotated[int, "number of servers"] = 1
    colour: str = field(default="red", validator=in_(["red", "green"]))


def problems_of(load) -> str:
    with pytest.raises(ConfigSourceError) as caught:
        load()
    assert caught.value.code == "LEX_ERR_CFG_003"
    return str(caught.value)


def one(text: str) -> str:
    return f"[LEX_ERR_CFG_003] 1 problem in the configuration\n\n{text}"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"size": "abc"}, "given value  farm.size = 'abc'\n    expected int"),
        ({"size": "5"}, "given value  farm.size = '5'\n    expected int"),
        ({"size": True}, "given value  farm.size = True\n    expected int"),
        ({"size": 5.0}, "given value  farm.size = 5.0\n    expected int"),
        ({"size": None}, "given value  farm.size = None\n    expected int"),
        (
            {"colour": 5},
            "given value  farm.colour = 5\n    expected str (put it in quotes)",
        ),
        (
            {"colour": "gren"},
            "given value  farm.colour = 'gren'\n    must be in ['red', 'green']",
        ),
        (
            {"sice": 5},
            "given value  farm.sice = 5\n    unknown key\n    did you mean: size",
        ),
        (
            {"qqq": 5},
            "given value  farm.qqq = 5\n    unknown key; known here: colour, servers, size",
        ),
        ({"servers": {}}, "given value  farm.servers = {}\n    expected a list of a mapping"),
        ({"servers": "a,b"}, "given value  farm.servers\n    expected a list of a mapping"),
        ({"servers": [3]}, "given value  farm.servers[0] = 3\n    expected a mapping, not int"),
        (
            {"servers": ["hunter2"]},
            "given value  farm.servers[0]\n    expected a mapping, not text",
        ),
        ({"servers": [{}]}, "given value  farm.servers[0].name\n    required: str"),
        (
            {"servers": [{"name": "a", "port": 0}]},
            "given value  farm.servers[0].port = 0\n    must be >= 1",
        ),
        (
            {"servers": [{"name": "a", "mode": "fst"}]},
            (
                "given value  farm.servers[0].mode = 'fst'\n    expected one of fast, safe\n"
                "    did you mean: fast"
            ),
        ),
        (
            {"servers": [{"name": "a", "ratio": "x"}]},
            "given value  farm.servers[0].ratio = 'x'\n    expected float",
        ),
        (
            {"servers": [{"name": "a", "tags": ["x", 1]}]},
            "given value  farm.servers[0].tags[1] = 1\n    expected str (put it in quotes)",
        ),
        (
            {"servers": [{"name": "a", "pair": [1]}]},
            "given value  farm.servers[0].pair = [...]\n    expected a list of int: 2 items, not 1",
        ),
        (
            {"servers": [{"name": "a", "limits": {"cpu": "x"}}]},
            "given value  farm.servers[0].limits.cpu = 'x'\n    expected int",
        ),
        (
            {"servers": [{"name": "a", "password": 12345}]},
            "given value  farm.servers[0].password = ***\n    expected str (put it in quotes)",
        ),
        (
            {"servers": [{"name": "a", "passwrod": "hunter2"}]},
            (
                "given value  farm.servers[0].passwrod = ***\n    unknown key\n"
                "    did you mean: password"
            ),
        ),
        (
            {"servers": [{"name": "a", "ratio": "redis://me:hunter2@host"}]},
            "given value  farm.servers[0].ratio = 'redis://***@host'\n    expected float",
        ),
    ],
)
def test_each_wrong_value_is_told_with_key_value_and_what_was_expected(data, text):
    assert problems_of(lambda: Farm.from_dict(data)) == one(text)


def test_all_problems_of_all_sources_come_in_one_error(tmp_path):
    (tmp_path / "application.yaml").write_text(
        "app:\n"
        "  boot_timeout: soon\n"
        "  shutdown_timeout: -5\n"
        "logging:\n"
        "  levle: DEBUG\n"
        "env: prodution\n"
        "loging:\n"
        "  level: DEBUG\n"
        "farm:\n"
        "  size: ${FARM_SIZE}\n"
        "  servers:\n"
        "    - port: 99999\n"
    )
    variables = {
        "LEX_APP__BOOT_TIMOUT": "4",
        "LEX_DEBUG": "maybe",
        "LEX_PROFIL": "prod",
        "LEX_FARM__SERVERS__0__PASSWRD": "hunter2",
    }

    def load():
        return load_config(base_path=tmp_path, env=variables, sections={"farm": Farm})

    text = problems_of(load).replace(f"{tmp_path}/", "")

    assert text == (
        "[LEX_ERR_CFG_003] 12 problems in the configuration\n"
        "\n"
        "application.yaml:10  farm.size\n"
        "    variable FARM_SIZE is not set; ${FARM_SIZE:default} would give a default\n"
        "\n"
        "LEX_PROFIL  profil = 'prod'\n"
        "    unknown key\n"
        "    did you mean: LEX_PROFILE\n"
        "\n"
        "application.yaml:7  loging = {...}\n"
        "    unknown key\n"
        "    did you mean: logging\n"
        "\n"
        "LEX_FARM__SERVERS__0__PASSWRD  farm.servers[0].passwrd = ***\n"
        "    unknown key\n"
        "    did you mean: LEX_FARM__SERVERS__0__PASSWORD\n"
        "\n"
        "application.yaml:12  farm.servers[0].name\n"
        "    required: str\n"
        "\n"
        "application.yaml:12  farm.servers[0].port = 99999\n"
        "    must be <= 65535\n"
        "\n"
        "LEX_DEBUG  debug = 'maybe'\n"
        "    expected true or false\n"
        "\n"
        "application.yaml:6  env = 'prodution'\n"
        "    expected one of development, staging, production, test\n"
        "    did you mean: production\n"
        "\n"
        "application.yaml:5  logging.levle = 'DEBUG'\n"
        "    unknown key\n"
        "    did you mean: level\n"
        "\n"
        "LEX_APP__BOOT_TIMOUT  app.boot_timout = '4'\n"
        "    unknown key\n"
        "    did you mean: LEX_APP__BOOT_TIMEOUT\n"
        "\n"
        "application.yaml:2  app.boot_timeout = 'soon'\n"
        "    expected float\n"
        "\n"
        "application.yaml:3  app.shutdown_timeout = -5.0\n"
        "    must be > 0"
    )


def test_problems_are_data_too(tmp_path):
    with pytest.raises(ConfigSourceError) as caught:
        LexigramConfig.from_dict({"debgu": True})
    assert caught.value.to_dict()["details"] == {
        "problems": [
            {
                "source": "given value",
                "key": "debgu",
                "value": "True",
                "message": "unknown key",
                "suggestion": "debug",
            }
        ]
    }


def test_a_missing_file_that_was_named_is_a_problem_with_the_nearest_file(tmp_path):
    (tmp_path / "settings.yaml").write_text("debug: true\n")
    text = problems_of(lambda: load_config(path=tmp_path / "setings.yaml", env={}))
    assert text == one(
        f"{tmp_path}/setings.yaml\n    file not found\n    did you mean: {tmp_path}/settings.yaml"
    )


def test_a_missing_profile_file_is_a_problem_that_says_who_asked(tmp_path):
    (tmp_path / "application.production.yaml").write_text("debug: false\n")
    by_variable = problems_of(
        lambda: load_config(base_path=tmp_path, env={"LEX_PROFILE": "prodution"})
    )
    assert by_variable == one(
        f"{tmp_path}/application.prodution.yaml\n"
        "    file not found: LEX_PROFILE asks for the profile 'prodution'\n"
        "    did you mean: production"
    )
    by_caller = problems_of(lambda: load_config(base_path=tmp_path, profile="../x", env={}))
    assert by_caller == one(
        f"{tmp_path}/application..._x.yaml\n"
        "    file not found: the caller asks for the profile '../x'"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "app: [1\nb: 2\n",
            ":2\n    is not valid YAML in column 2: expected ',' or ']', but got ':'",
        ),
        (
            "app:\n\tboot_timeout: 1\n",
            (
                ":2\n    is not valid YAML in column 1: "
                "found character '\\t' that cannot start any token"
            ),
        ),
        ("- a\n- b\n", ":1\n    expected a mapping of sections at the top of the file"),
        ("app:\n  ? [a, b]\n  : 1\n", ":2  app\n    a key must be plain text"),
        ("debug: true\napp:\ndebug: false\n", ":3  debug\n    written twice: first in line 1"),
        (
            "debug: !!python/object:os.system {}\n",
            ":1  debug\n    the tag tag:yaml.org,2002:python/object:os.system is not accepted",
        ),
        ("app_name: !env X\n", ":1  app_name\n    the tag !env is not accepted"),
        (
            "app_name: !!int hunter2\n",
            ":1  app_name\n    does not fit its tag tag:yaml.org,2002:int",
        ),
        (
            "app_name: !!bool hunter2\n",
            ":1  app_name\n    does not fit its tag tag:yaml.org,2002:bool",
        ),
        (
            f"app_name: !!float 1{':1' * 200}\n",
            ":1  app_name\n    does not fit its tag tag:yaml.org,2002:float",
        ),
        ("app: &a\n  x: *a\n", ":2  app.x\n    an alias contains itself"),
        (
            "app_name: a\x01b\n",
            "\n    is not valid YAML: unacceptable character #x0001: special characters are not allowed",
        ),
        (
            'debug: true\napp_name: "\\UFFFFFFFF"\n',
            ":2\n    is not valid YAML in column 14: a number is out of range",
        ),
        (
            f"%YAML {'9' * 5_000}.1\n---\ndebug: true\n",
            ":1\n    is not valid YAML in column 7: a number is out of range",
        ),
    ],
)
def test_bad_yaml_is_a_problem_with_its_line(tmp_path, content, text):
    file = tmp_path / "application.yaml"
    file.write_text(content)
    assert problems_of(lambda: load_config(base_path=tmp_path, env={})) == one(f"{file}{text}")


def test_a_file_that_is_no_text_or_no_file_is_a_problem(tmp_path):
    file = tmp_path / "application.yaml"
    file.write_bytes(b"app: \xff\n")
    assert problems_of(lambda: load_config(base_path=tmp_path, env={})) == one(
        f"{file}\n    is not UTF-8 text (byte 5)"
    )
    file.unlink()
    file.mkdir()
    assert problems_of(lambda: load_config(base_path=tmp_path, env={})) == one(
        f"{file}\n    cannot be read: Is a directory"
    )


def test_settings_of_an_unreadable_file_are_not_called_missing(tmp_path):
    file = tmp_path / "application.yaml"
    file.write_text("a: [")
    text = problems_of(lambda: Server.from_yaml(file, env={"LEX_PORT": "x"}))
    assert "required" not in text
    assert "LEX_PORT  port = 'x'\n    expected int" in text


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"LEX_APP": "5"}, "LEX_APP  app\n    expected a mapping, not text"),
        ({"LEX_APP": "{nope"}, "LEX_APP  app\n    expected a mapping as JSON"),
        (
            {"LEX_APP__": "5"},
            "LEX_APP__\n    is not the name of a setting: LEX_SECTION__FIELD is expected",
        ),
        (
            {"LEX_APP": "{}", "LEX_APP__BOOT_TIMEOUT": "5"},
            "LEX_APP__BOOT_TIMEOUT\n    LEX_APP already sets all of app: use one of the two",
        ),
        (
            {"LEX_LOGGING__LEVEL": "LOUD"},
            (
                "LEX_LOGGING__LEVEL  logging.level = 'LOUD'\n    is not a log level: one of CRITICAL,"
                " DEBUG, ERROR, FATAL, INFO, NOTSET, SUCCESS, TRACE, WARN, WARNING, or a number"
            ),
        ),
    ],
)
def test_a_wrong_variable_is_named(tmp_path, variables, text):
    assert problems_of(lambda: load_config(base_path=tmp_path, env=variables)) == one(text)


def test_list_items_set_by_variables_must_have_no_gap():
    text = problems_of(lambda: Farm.from_env({"LEX_FARM__SERVERS__1__NAME": "b"}))
    assert text == one(
        "LEX_FARM__SERVERS__1__NAME  farm.servers[1].name\n"
        "    item 1 comes after a gap: the list has 0 items before it"
    )


@frozen(kw_only=True)
class Login(BaseConfig):
    config_section: ClassVar[str] = "login"
    user: str = ""
    key: SecretStr = field(default=SecretStr(""))

    def __attrs_post_init__(self) -> None:
        if self.key and not self.user:
            raise ValueError(f"a key ({self.key.reveal()!r}) needs a user")


def test_what_a_class_itself_refuses_is_told_without_its_secrets():
    text = problems_of(lambda: Login.from_dict({"key": "hunter2"}))
    assert text == one("given value  login\n    a key ('***') needs a user")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["servers", "size", "name", "port", "limits", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["servers", "size", "colour", "x"]), anything))
def test_any_data_is_accepted_or_refused_and_never_crashes(data):
    with suppress(ConfigSourceError):
        assert isinstance(Farm.from_dict(data), Farm)


@given(
    st.text(max_size=40)
    | st.text(st.sampled_from("app:env-[]{}&*!|>'\"%@`#?,\n\t 0x1.e_~<$"), max_size=40),
    st.dictionaries(
        st.text(st.sampled_from("APFARM_01"), max_size=12).map(lambda name: f"LEX_{name}"),
        st.text(max_size=10),
    ),
)
def test_any_file_and_any_variables_are_accepted_or_refused(tmp_path_factory, content, variables):
    folder = tmp_path_factory.mktemp("config")
    (folder / "application.yaml").write_bytes(content.encode("utf-8", "surrogatepass"))
    with suppress(ConfigSourceError):
        load_config(base_path=folder, env=variables, sections={"farm": Farm})


@pytest.mark.parametrize("text", ["9" * 5000, "1" * 400 + ".5.5"])
def test_numbers_too_long_to_read_are_refused(text):
    with pytest.raises(ConfigSourceError, match="expected int"):
        Farm.from_env({"LEX_FARM__SIZE": text})


def test_a_number_too_large_for_a_float_is_refused():
    with pytest.raises(ConfigSourceError, match="expected float"):
        Farm.from_dict({"servers": [{"name": "a", "ratio": 10**400}]})


@pytest.mark.parametrize("text", ["app: " + "[" * 5_000, "app:\n " + "- " * 5_000])
def test_a_file_that_is_nested_too_deeply_is_a_problem_with_its_place(tmp_path, text):
    (tmp_path / "application.yaml").write_text(text)
    told = problems_of(lambda: load_config(base_path=tmp_path, env={}))
    assert "application.yaml" in told
    assert "nested deeper than 30 levels" in told


@pytest.mark.parametrize("variable", ["LEX_FARM", "LEX_FARM__SERVERS", "LEX_ZZZ"])
def test_json_that_is_nested_too_deeply_is_a_problem(variable):
    deep = '{"a":' * 5_000 if variable != "LEX_FARM__SERVERS" else "[" * 5_000
    with pytest.raises(ConfigSourceError) as caught:
        load_config(env={variable: deep, "LEX_FARM__SIZ": "1"}, sections={"farm": Farm})
    assert caught.value.problems


def test_a_profile_that_can_be_no_file_is_a_problem(tmp_path):
    with pytest.raises(ConfigSourceError, match="is no name of a file"):
        load_config(base_path=tmp_path, env={"LEX_PROFILE": "a\ud800"})
