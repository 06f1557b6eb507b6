"""Read settings from YAML files and LEX_ variables; the only place that reads the environment."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lexigram.config.errors import ConfigProblem
from lexigram.config.redact import is_secret_name
from lexigram.config.tree import (
    ENV_DELIMITER,
    ENV_PREFIX,
    Broken,
    ConfigTrace,
    ConfigTree,
    KeyPath,
    SecretText,
    Text,
    key_text,
)

if TYPE_CHECKING:
    from yaml import SafeLoader
    from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

DEFAULT_FILE: Final = "application.yaml"

# LEX_ variables that are not settings, and what they do.
RESERVED_VARIABLES: Final[Mapping[str, str]] = {
    "LEX_PROFILE": "Name of the profile file to lay over the base file.",
    "LEX_QUIET": "true: log warnings and errors only, no start-up lines.",
    "LEX_REQUIRE_SERVICES": "true: tests fail instead of skipping when a service is missing.",
    "LEX_CHAOS_ROUNDS": "How often the chaos tests repeat.",
}

TRUE_WORDS: Final = frozenset({"true", "1", "yes", "on"})
FALSE_WORDS: Final = frozenset({"false", "0", "no", "off"})

_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null")
)
# Variables without an effect that were logged already.
_logged: set[str] = set()
_log = logging.getLogger(__name__)
_NESTING = 30  # levels of brackets and indentation; nobody writes half of it
_DOCUMENT_VALUES = 20_000  # far more than anybody writes; aliases of aliases would make billions
_VARIABLE = re.compile(r"\$(\$?)\{([A-Za-z_]\w*)(?::([^}]*))?\}")


def environment(env: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The variables to read: those given, else those of the process."""
    return os.environ if env is None else env


def flag(name: str, env: Mapping[str, str] | None = None) -> bool:
    """True when the reserved variable ``name`` is set to true, 1, yes or on."""
    assert name in RESERVED_VARIABLES, name
    return environment(env).get(name, "").strip().lower() in TRUE_WORDS


def read_environment(
    env: Mapping[str, str], section: KeyPath = (), *, known: Collection[str] = ()
) -> ConfigTree:
    """All LEX_ variables as a tree; with a ``section``, only those below it.

    ``known``: variables with a meaning of their own, such as aliases.
    """
    tree = ConfigTree()
    not_settings = {*RESERVED_VARIABLES, *known}
    names = (name for name in env if name.startswith(ENV_PREFIX) and name not in not_settings)
    paths = sorted((variable_path(name), name) for name in names)
    # Parents first, so that a variable for a whole section meets those for parts of it.
    for path, name in sorted(paths, key=lambda item: len(item[0])):
        keys = tuple(int(part) if part.isdecimal() else part for part in path)
        if keys[: len(section)] == section:
            _set_variable(tree, keys, name, env[name])
    return tree


def read_aliases(
    env: Mapping[str, str], aliases: Mapping[str, KeyPath], dropped: Mapping[str, str]
) -> ConfigTree:
    """Variables that are known under a name without LEX_; those without an effect are logged once."""
    tree = ConfigTree()
    for name, path in aliases.items():
        if name in env:
            _set_variable(tree, path, name, env[name])
    for name, reason in dropped.items():
        if name in env and name not in _logged:
            _logged.add(name)
            _log.warning("the variable %s has no effect: %s", name, reason)
    return tree


def log_ignored(trace: ConfigTrace) -> None:
    """Log the variables that resemble no setting: in one line, each once in a process."""
    names = sorted(trace.ignored - _logged)
    if names:
        _logged.update(names)
        _log.warning("unknown variables are ignored: %s", ", ".join(names))


def variable_path(name: str) -> tuple[str, ...]:
    """The parts of a variable name, in lower case: LEX_APP__BOOT_TIMEOUT -> app, boot_timeout."""
    return tuple(name.removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER))


def read_yaml(
    path: Path, env: Mapping[str, str], missing: Callable[[], ConfigProblem] | None = None
) -> ConfigTree:
    """One YAML file as a tree. What cannot be read becomes a problem of the tree.

    ``missing`` gives the problem of a file that is not there; without it that is fine.
    """
    tree = ConfigTree()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        tree.problems += [missing()] if missing else []
        return tree
    except OSError as error:
        tree.problems.append(_problem(path, f"cannot be read: {error.strerror or error}"))
        return tree
    except UnicodeDecodeError as error:
        tree.problems.append(_problem(path, f"is not UTF-8 text (byte {error.start})"))
        return tree
    except ValueError:  # a NUL or a lone surrogate, from LEX_PROFILE
        tree.problems.append(ConfigProblem(source=ascii(str(path)), message="is no name of a file"))
        return tree
    # The library takes 10 ms: not paid where there is no file.
    loader, node = _root_node(text, tree, path)
    if node is not None:
        _YamlReader(tree, path, env, loader).read(node)
    return tree


def read_yaml_document(text: str, name: str) -> ConfigTree:
    """YAML that is not configuration, as a tree; ``name`` stands for its file in places.

    It may come from anybody: ``${VAR}`` is plain text, and what its aliases multiply is bounded.
    Places have columns: ``name:line:column``.
    """
    tree = ConfigTree()
    most = 2 * _DOCUMENT_VALUES  # its keys are nodes too
    loader, node = _root_node(text, tree, name, max_nodes=most, column_in_place=True)
    if node is not None:
        _DocumentReader(tree, name, {}, loader).read(node)
    return tree


def _root_node(
    text: str,
    tree: ConfigTree,
    name: Path | str,
    *,
    max_nodes: int | None = None,
    column_in_place: bool = False,
) -> tuple[Any, Node | None]:
    """The document and what loads its values; without a node when it is empty or not YAML."""
    import yaml

    loader = None
    try:
        loader = _loader_class(max_nodes)(text)
        return loader, loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        problem = _yaml_problem(name, error, column_in_place=column_in_place)
    except yaml.YAMLError as error:
        problem = _problem(name, f"is not valid YAML: {str(error).splitlines()[0]}")
    except (ValueError, OverflowError):
        # PyYAML passes on what chr() and int() raise: for a character above U+10FFFF, for a
        # version of thousands of digits.
        mark = None if loader is None else loader.get_mark()
        refused = yaml.MarkedYAMLError(problem="a number is out of range", problem_mark=mark)
        problem = _yaml_problem(name, refused, column_in_place=column_in_place)
    tree.problems.append(problem)
    return loader, None


class _YamlReader:
    """Turns YAML nodes into data: with lines, ``${VAR}``, and no key twice."""

    def __init__(
        self, tree: ConfigTree, path: Path | str, env: Mapping[str, str], loader: SafeLoader
    ) -> None:
        self.tree = tree
        self.file = path
        self.env = env
        self.loader = loader
        self.open_nodes: list[int] = []
        self.flattened: set[int] = set()

    def read(self, node: Node) -> None:
        from yaml.nodes import MappingNode

        if isinstance(node, MappingNode):
            self.tree.data = self.mapping(node, ())
        elif node.tag != "tag:yaml.org,2002:null":
            self.report(
                self.place(node), (), "expected a mapping of sections at the top of the file"
            )

    def value(self, node: Node, path: KeyPath, place: str) -> Any:
        from yaml.nodes import MappingNode, ScalarNode, SequenceNode

        if id(node) in self.open_nodes:
            return self.report(place, path, "an alias contains itself")
        if node.tag not in _TAGS:
            return self.report(place, path, f"the tag {node.tag} is not accepted")
        self.open_nodes.append(id(node))
        try:
            if isinstance(node, ScalarNode):
                self.tree.trace.record(path, place)
                return self.scalar(node, path, place)
            self.tree.trace.record(path, place, container=True)
            if isinstance(node, MappingNode):
                return self.mapping(node, path)
            assert isinstance(node, SequenceNode)
            return self.sequence(node, path)
        finally:
            self.open_nodes.pop()

    def mapping(self, node: MappingNode, path: KeyPath) -> dict[Any, Any]:
        self.flatten(node, path)
        data: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            # Keys are names: "on", "1" and "null" stay what was written. A value is looked for
            # in the line of its key, also when it starts below.
            key = str(key_node.value)
            data[key] = self.value(value_node, (*path, key), self.place(key_node))
        return data

    def flatten(self, node: MappingNode, path: KeyPath) -> None:
        """Report bad keys and put ``<<`` merges in place; once, as aliases share nodes."""
        from yaml import MarkedYAMLError
        from yaml.nodes import ScalarNode

        if id(node) in self.flattened:
            return
        self.flattened.add(id(node))
        written: dict[str, int] = {}
        for key_node, _ in list(node.value):
            if not isinstance(key_node, ScalarNode):
                self.report(self.place(key_node), path, "a key must be plain text")
                node.value = []
                return
            name, line = key_node.value, key_node.start_mark.line + 1
            if name in written:
                text = f"written twice: first in line {written[name]}"
                self.report(self.place(key_node), (*path, name), text)
            written.setdefault(name, line)
        try:
            self.loader.flatten_mapping(node)
        except MarkedYAMLError as error:
            self.report(self.place(node), path, f"is not valid YAML: {error.problem}")
            node.value = []

    def sequence(self, node: SequenceNode, path: KeyPath) -> list[Any]:
        return [
            self.value(item, (*path, index), self.place(item))
            for index, item in enumerate(node.value)
        ]

    def scalar(self, node: ScalarNode, path: KeyPath, place: str) -> Any:
        try:
            value = self.loader.construct_object(node, deep=True)
        except (ValueError, OverflowError, LookupError):
            # The text of the error shows the value, which may be secret.
            return self.report(place, path, f"does not fit its tag {node.tag}")
        if not isinstance(value, str):
            return value
        if "${" in value:
            return self.interpolate(path, place, value)
        # YAML 1.1 reads these as booleans, 1.2 as text: here the setting decides.
        plain_word = not node.style and value.lower() in {"yes", "no", "on", "off"}
        return Text(value) if plain_word else value

    def interpolate(self, path: KeyPath, place: str, text: str) -> Any:
        used: list[str] = []
        missing: list[str] = []

        def replace(match: re.Match[str]) -> str:
            escaped, name, default = match.groups()
            if escaped:
                return match[0][1:]
            used.append(name)
            if name not in self.env and default is None:
                missing.append(name)
            return self.env.get(name, default or "")

        # Up to the last brace: each of many that are not closed would be read to the end of the text.
        end = text.rfind("}") + 1
        value = _VARIABLE.sub(replace, text[:end]) + text[end:]
        for name in missing:
            text = f"variable {name} is not set; ${{{name}:default}} would give a default"
            self.report(place, path, text)
        if missing:
            return Broken()
        if used:
            self.tree.trace.record(path, f"{place} via {', '.join(used)}")
        if any(is_secret_name(name) for name in used):
            return SecretText(value)
        return Text(value) if used else value

    def report(self, place: str, path: KeyPath, text: str) -> Broken:
        problem = ConfigProblem(source=place, key=key_text(path), message=text)
        self.tree.problems.append(problem)
        return Broken()

    def place(self, node: Node) -> str:
        return f"{self.file}:{node.start_mark.line + 1}"


class _DocumentReader(_YamlReader):
    """The same for documents of others."""

    values = 0

    def value(self, node: Node, path: KeyPath, place: str) -> Any:
        self.values += 1
        if self.values > _DOCUMENT_VALUES:
            if self.values == _DOCUMENT_VALUES + 1:
                self.report(place, path, f"the document has more than {_DOCUMENT_VALUES} values")
            return Broken()
        return super().value(node, path, place)

    def interpolate(self, path: KeyPath, place: str, text: str) -> Any:
        return text

    def place(self, node: Node) -> str:
        return f"{super().place(node)}:{node.start_mark.column + 1}"


@cache
def _loader_class(max_nodes: int | None = None) -> type[SafeLoader]:
    """A YAML loader with the scalars of YAML 1.2: no sexagesimal, octal or date surprises.

    It stops at the first bracket or line that is nested too deeply, and after ``max_nodes``.
    """
    import yaml
    from yaml.scanner import ScannerError

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own way to declare it
        nodes = depth = 0

        def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 - PyYAML's
            # Here and not below: the scanner is up to 1,024 brackets ahead, and looks at every
            # open one for each (5,000 of them: 4 s).
            self.refuse(self.flow_level >= _NESTING, f"nested deeper than {_NESTING} levels")
            super().fetch_flow_collection_start(TokenClass)

        def compose_node(self, parent: Node | None, index: Any) -> Node | None:
            self.nodes += 1
            self.depth += 1
            many = max_nodes is not None and self.nodes > max_nodes
            self.refuse(many, f"the document has more than {max_nodes} keys and values")
            self.refuse(self.depth > _NESTING, f"nested deeper than {_NESTING} levels")
            found = super().compose_node(parent, index)
            self.depth -= 1
            return found

        def refuse(self, condition: bool, problem: str) -> None:
            if condition:
                raise ScannerError(None, None, problem, self.get_mark())

    number = r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?)"
    for tag, pattern, first in (
        ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
        ("int", r"^(?:[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+)$", "-+0123456789"),
        ("float", rf"^(?:{number}(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$", "-+.0123456789"),
        ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
        ("merge", r"^<<$", "<"),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))
    return Loader


def _set_variable(tree: ConfigTree, keys: KeyPath, name: str, value: str) -> None:
    if "" in keys:
        text = f"is not the name of a setting: {ENV_PREFIX}SECTION{ENV_DELIMITER}FIELD is expected"
        tree.problems.append(ConfigProblem(source=name, message=text))
        return
    node = tree.data
    for part in keys[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            source, whole = tree.trace.place_of(keys)
            text = f"{source} already sets all of {key_text(whole)}: use one of the two"
            tree.problems.append(ConfigProblem(source=name, message=text))
            return
    node[keys[-1]] = Text(value)
    tree.trace.record(keys, name)


def _problem(path: Path | str, message: str) -> ConfigProblem:
    return ConfigProblem(source=str(path), message=message)


def _yaml_problem(path: Path | str, error: Any, *, column_in_place: bool = False) -> ConfigProblem:
    mark = error.problem_mark or error.context_mark
    place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
    column = f" in column {mark.column + 1}" if mark is not None else ""
    if column_in_place and mark is not None:
        place, column = f"{place}:{mark.column + 1}", ""
    text = " ".join(str(error.problem or error.context).split())
    return ConfigProblem(source=place, message=f"is not valid YAML{column}: {text}")
