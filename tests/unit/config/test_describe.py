"""What `config env` and `config show` list."""

from typing import Annotated, ClassVar

from attrs import field, frozen

from lexigram.config import (
    RESERVED_VARIABLES,
    AppConfig,
    BaseConfig,
    ConfigValue,
    EnvVariable,
    LexigramConfig,
    doc,
    env_variables,
    explain_values,
    flag,
    load_config,
    secret,
)


@frozen(kw_only=True)
class Node(BaseConfig):
    host: str
    token: str = field(default="abc", metadata=secret("Who we are."))
    children: "list[Node]" = field(factory=list)


@frozen(kw_only=True)
class Cluster(BaseConfig):
    config_section: ClassVar[str] = "cluster.main"
    size: Annotated[int, "nodes"] = field(default=3, metadata=doc("How many nodes."))
    nodes: list[Node] = field(factory=list)
    by_name: dict[str, Node] = field(factory=dict)
    spare: Node | None = None


def test_every_setting_has_a_variable_with_type_default_and_text():
    variables = {variable.name: variable for variable in env_variables(Cluster)}
    assert list(variables) == [
        "LEX_CLUSTER__MAIN__SIZE",
        "LEX_CLUSTER__MAIN__NODES__<N>__HOST",
        "LEX_CLUSTER__MAIN__NODES__<N>__TOKEN",
        "LEX_CLUSTER__MAIN__BY_NAME__<KEY>__HOST",
        "LEX_CLUSTER__MAIN__BY_NAME__<KEY>__TOKEN",
        "LEX_CLUSTER__MAIN__SPARE__HOST",
        "LEX_CLUSTER__MAIN__SPARE__TOKEN",
    ]
    assert variables["LEX_CLUSTER__MAIN__SIZE"] == EnvVariable(
        name="LEX_CLUSTER__MAIN__SIZE",
        key="cluster.main.size",
        type="int",
        default=3,
        required=False,
        secret=False,
        doc="How many nodes.",
    )
    token = variables["LEX_CLUSTER__MAIN__SPARE__TOKEN"]
    assert (token.default, token.secret, token.doc) == ("***", True, "Who we are.")
    assert variables["LEX_CLUSTER__MAIN__SPARE__HOST"].required


def test_the_variables_of_the_root_are_those_it_reads(tmp_path):
    for variable in env_variables(LexigramConfig):
        text = {"a mapping": "{}", "a list of str": ""}.get(variable.type, str(variable.default))
        config = load_config(base_path=tmp_path, env={variable.name: text})
        assert config == LexigramConfig()
        assert config.trace.source_of(variable.key) == variable.name
        assert variable.doc


def test_a_section_class_may_be_listed_under_another_name():
    assert env_variables(AppConfig, "app")[0].name == "LEX_APP__BOOT_TIMEOUT"


def test_every_value_is_shown_with_its_source(tmp_path):
    (tmp_path / "application.yaml").write_text(
        "app_name: shop\ncluster:\n  nodes:\n    - host: a\n      token: t\n"
    )
    config = load_config(base_path=tmp_path, env={"LEX_CLUSTER__SIZE": "5"})
    values = [value for value in explain_values(config) if value.source != "default"]
    file = tmp_path / "application.yaml"
    assert values == [
        ConfigValue(key="app_name", value="shop", source=f"{file}:1"),
        ConfigValue(key="cluster.nodes[0].host", value="a", source=f"{file}:4"),
        ConfigValue(key="cluster.nodes[0].token", value="***", source=f"{file}:5"),
        ConfigValue(key="cluster.size", value="5", source="LEX_CLUSTER__SIZE"),
    ]
    assert ConfigValue(key="logging.levels", value={}, source="default") in explain_values(config)


def test_reserved_variables_are_no_settings(tmp_path):
    (tmp_path / "application.true.yaml").write_text("")
    env = dict.fromkeys(RESERVED_VARIABLES, "true")
    assert load_config(base_path=tmp_path, env=env) == LexigramConfig()
    assert flag("LEX_QUIET", env)
    assert not flag("LEX_QUIET", {})
    assert not flag("LEX_QUIET", {"LEX_QUIET": "0"})
