"""Check the rooms with one owner: what only one place of the source may touch.

import-linter says who may import whom among our packages; this says who may touch the outside,
and where the text of SQL statements may stand.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Room:
    """Names that may be used only in files matching one of the owners."""

    what: str
    names: tuple[str, ...]  # dotted prefixes of imports and attribute accesses
    owners: tuple[str, ...]  # patterns on the path below src/lexigram/


ROOMS = (
    Room(
        "environment variables",
        ("os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv"),
        ("config/*",),
    ),
    Room(
        "process signals",
        ("signal", "anyio.open_signal_receiver"),
        ("app/signals.py",),
    ),
    # Set up in the first; the second listens during a test and leaves logging as found.
    Room("loguru", ("loguru",), ("observability/logging.py", "testing/logs.py")),
    Room(
        "SQL",
        ("sqlalchemy", "alembic", "asyncpg", "aiosqlite", "sqlite3"),
        ("sql/*", "*/store*.py", "*/tables.py", "migrations/*", "*/migrations/*"),
    ),
    # A broker, and the shared memory of several processes.
    Room("redis", ("redis",), ("queue/backends/*", "resilience/redis.py", "cache/redis.py")),
    Room(
        "broker clients",
        (
            *("aio_pika", "aiormq", "confluent_kafka", "aiokafka", "aiobotocore"),
            *("azure.servicebus", "google.cloud.pubsub", "google.pubsub_v1", "nats"),
        ),
        ("queue/backends/*",),
    ),
    Room("opendal", ("opendal",), ("blobs/*",)),
    Room(
        "HTTP",
        ("fastapi", "starlette", "uvicorn"),
        ("web/*", "*/web/*", "*/routes.py", "*/router.py"),
    ),
)


_SQL_TEXT = re.compile(
    r"\s*\(?(SELECT|WITH( RECURSIVE)? \w+ ?(\(.*?\))? AS)\b"
    r"|.*\b(INSERT( OR \w+)? INTO|UPDATE \S+( \w+)? SET|DELETE FROM|CREATE (TABLE|VIEW))\b",
    re.DOTALL,
)
# Statements stand apart from the flow: in stores, and in the modules of statements beside them.
SQL_TEXT_OWNERS = (
    *("sql/*", "*/sql/*", "*/store*", "*_store.py", "*/statements*.py"),
    *("*/tables.py", "*/views.py", "migrations/*", "*/migrations/*"),
)


def main() -> int:
    problems = [problem for path in sources() for problem in check(path)]
    for problem in problems:
        print(problem)
    print(f"rooms: {len(problems)} problems in {len(list(sources()))} files")
    return 1 if problems else 0


def sources() -> Iterator[Path]:
    """Every source file of the five distributions."""
    return (path for folder in sorted(ROOT.glob("lexigram*/src")) for path in folder.rglob("*.py"))


def check(path: Path) -> Iterator[str]:
    """The problems of one file, each as ``path:line: text``."""
    inside = path.relative_to(_portion(path)).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for name, line in _uses(tree):
        for room in ROOMS:
            if _covers(room.names, name) and not any(fnmatch(inside, o) for o in room.owners):
                place = " or ".join(room.owners)
                yield f"{_shown(path)}:{line}: {name}: {room.what} belong to lexigram/{place}"
        if inside.startswith("contracts/") and not _allowed_in_contracts(name):
            yield f"{_shown(path)}:{line}: {name}: contracts use the standard library only"
    if not any(fnmatch(inside, owner) for owner in SQL_TEXT_OWNERS):
        for line in _sql_texts(tree):
            yield f"{_shown(path)}:{line}: SQL statements belong to a store"


def _sql_texts(tree: ast.Module) -> Iterator[int]:
    """The lines of strings that are SQL statements; docstrings are prose."""
    seen: set[ast.AST] = set()
    for node in ast.walk(tree):  # a node comes before its parts
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            seen.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            seen.update(node.values)
            if _SQL_TEXT.match("".join(map(_text_of, node.values))):
                yield node.lineno
        elif (
            isinstance(node, ast.Constant) and node not in seen and _SQL_TEXT.match(_text_of(node))
        ):
            yield node.lineno


def _text_of(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "x"


def _portion(path: Path) -> Path:
    """The ``src/lexigram`` folder above a source file (the last, as a distribution has the name)."""
    return next(p for p in path.parents if p.name == "lexigram" and p.parent.name == "src")


def _uses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Dotted names a module imports, or reaches through a module it imported."""
    modules: dict[str, str] = {}
    for node in _run_time_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}", node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            root = modules.get(node.value.id)
            if root is not None and root in sys.stdlib_module_names | {"anyio"}:
                yield f"{root}.{node.attr}", node.lineno


def _run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node in source order, leaving out ``if TYPE_CHECKING:`` blocks."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _run_time_nodes(node)


def _covers(names: tuple[str, ...], used: str) -> bool:
    return any(used == name or used.startswith(f"{name}.") for name in names)


def _allowed_in_contracts(name: str) -> bool:
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or name.startswith("lexigram.contracts")


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
