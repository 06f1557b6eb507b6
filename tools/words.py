"""Check the words of the product: the field's terms, and functions that are named by verbs.

    python tools/words.py                  every problem, and the share of participles by folder
    python tools/words.py --participles    every function that is named by a participle
    python tools/words.py lexigram_queue   the files below some folders only

A name, an error, a help line or a title has to be understood by a reader who knows the field and
no project of ours. The glossary (docs/glossary.md) has the terms; this has what stands in their way.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "lexigram_contracts",
    "lexigram",
    "lexigram_queue",
    "lexigram_workflow",
    "lexigram_ai_workers",
    "docs",
    "examples",
    "changelog.d",
)
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
ENDINGS = (".py", ".md", ".toml", ".tmpl", ".yaml", ".html")
# Notes about the past quote it; figures are what benchmarks and the measured pages are made of.
EXEMPT = ("docs/decisions/", "docs/benchmarks.md", "docs/evidence/", "changelog.d/README.md")
MAX_SHARE = 0.02  # of the functions of a distribution that are named by a participle
# Folders that are not there yet: how many problems they have. A number may only fall; a folder
# that has none left loses its row, and this table goes with the last one.
ALLOWED: dict[str, int] = {}
# Functions of a distribution above the share, likewise.
ALLOWED_PARTICIPLES: dict[str, int] = {}
# Names that users of the 0.1 line know, and decorators that describe a state.
KNOWN_NAMES = frozenset(
    {"scoped", "published_of_type", "failed_nodes", "succeeded_nodes", "expected_version"}
)


@dataclass(frozen=True)
class Word:
    """A pattern that must not appear, and what to write."""

    pattern: str
    instead: str


# In everything that is read: pages, strings and comments.
PROSE = tuple(
    Word(pattern, instead)
    for pattern, instead in (
        (r"told|tells? (?:of|by|once|no|what|how|which|who|that|so)", "log, report, return, notify"),
        # <figure> is an element of HTML.
        (r"figures|(?<!\")(?<!figcaption )figure", "statistics, numbers, a metric"),
        (r"(?<!random )(?<!with a )seeds?(?= \d{3}|'s| sentence| document)", "nothing: users have no such document"),
        (r"the seed(?!s?ed)", "nothing: users have no such document"),
        (r"issue #?\d+", "nothing: users have no such document"),
        (r"a heart", "LeaseHeartbeat"),
        (r"only[ _]looks?", "background=False, background_enabled"),
        (r"pictures?(?= of the (?:graph|modules))", "diagram"),
        (r"the house|law of imports", "repository layout, import rules"),
        (r"which is none|is none of", "unknown X"),
        (r"not in order:|not fit for", "invalid"),
        (r"others will notice|he is next|the dead (?:one|worker)", "plain facts: what expires, what is refused"),
        (r"in hand", "in flight"),
        (r"the furthest behind first", "largest first"),
        (r"seconds between two looks", "poll interval, in seconds"),
        (r"looks? into", "inspect"),
        (r"goes on where it was|go on where (?:it|they) (?:was|were)", "resumes"),
        (r"what (?:is|was|could be) [a-z ]{1,40} and is not", "a noun of the field"),
        (r"how many letters|old when it arrives", "Number of dead letters; may already be stale."),
        (r"(?<!dead\s)(?<!dead-)letters(?! (?:and|or) digits)(?! of the alphabet)", "dead letters"),
        (r"fill it:", "run the command first"),
        (r"tells no", "is unavailable"),
        (r"(?:process|worker|store|broker|driver|server|queue|step|run|job)s? (?:asks?|says?|tells?|notices?|knows?)", "log, report, request, detect"),
        (r"somebody|whoever|whom", "a caller, another process, the owner"),
        (r"left alone", "skipped, unchanged"),
        (r"for good", "permanently"),
    )
)  # fmt: skip
# In names: of modules, classes, functions, variables and arguments, their words apart.
NAMES = tuple(
    Word(pattern, instead)
    for pattern, instead in (
        (r"told", "a verb or a noun of the field"),
        (r"figures?", "statistics"),
        (r"tellers?|announcers?", "EventEmitter"),
        (r"seats?", "ProviderEntry"),
        (r"hearts?", "LeaseHeartbeat"),
        (r"poke", "wake"),
        (r"only looks?|may work", "background_enabled"),
        (r"pictures?", "diagram"),
        (r"walked", "run_steps"),
        (r"most messages|of others", "MAX_…"),
        (r"letters?(?<!dead letters)(?<!dead letter)", "dead letter"),
        (r"seed (?:aliases|handlers|definitions)", "the name of the other product"),
    )
)  # fmt: skip


def _compile(words: tuple[Word, ...]) -> list[tuple[re.Pattern[str], Word]]:
    return [(re.compile(rf"(?<!\w)(?:{one.pattern})(?!\w)", re.IGNORECASE), one) for one in words]


_PROSE, _NAMES = _compile(PROSE), _compile(NAMES)
# `RunGroupFigures`, `OF_OTHERS` and `HTTPServer` are several words.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# The irregular participles that functions were named by.
_IRREGULAR = frozenset(
    re.findall(
        r"\w+",
        """
        begun bound broken brought built called caught chosen dealt done drawn driven fallen felt
        forgotten fought found frozen given gone grown heard held hidden kept known laid led left
        lent lost made meant met paid risen said sent shown sold sought spent spoken stolen struck
        stuck sunk swept taken taught thought thrown told torn understood woken won worn wound
        written
        """,
    )
)
# They end like participles and are none.
_NOT_PARTICIPLES = frozenset(
    {"embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed", "succeed"}
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help="folders or files; default: the whole product")
    parser.add_argument("--participles", action="store_true", help="list the functions")
    options = parser.parse_args()
    if options.paths:
        return _report([Path(path).resolve() for path in options.paths], options.participles)
    wrong = [text for name in FOLDERS for text in check_folder(name)]
    wrong += [text for name in PAGES for text in check_words(ROOT / name)]
    for text in wrong:
        print(text)
    print(f"words: {len(wrong)} problems")
    return int(bool(wrong))


def _report(places: list[Path], with_participles: bool) -> int:
    files = [file for place in places for file in files_below(place)]
    problems = [problem for file in files for problem in check_words(file)]
    functions = list(_functions(files))
    participles = [(place, name) for place, name in functions if is_participle(name)]
    for problem in problems:
        print(problem)
    for place, name in participles if with_participles else ():
        print(f"{place}: {name}")
    share = len(participles) / max(len(functions), 1)
    print(
        f"words: {len(problems)} problems in {len(files)} files; "
        f"{len(participles)} of {len(functions)} functions ({share:.1%}) are named by a participle"
    )
    return int(bool(problems) or share > MAX_SHARE)


def check_folder(name: str) -> Iterator[str]:
    """The problems of a folder, or one line where their number is not the allowed one."""
    files = list(files_below(ROOT / name))
    problems = [problem for file in files for problem in check_words(file)]
    allowed = ALLOWED.get(name, 0)
    if allowed and len(problems) > allowed:
        yield (
            f"{name}: {len(problems)} problems, {allowed} are allowed; "
            f"Fix: mend them (python tools/words.py {name} lists them)"
        )
    elif not allowed:
        yield from problems
    functions = list(_functions(files))
    participles = sum(is_participle(function) for _, function in functions)
    limit = ALLOWED_PARTICIPLES.get(name, int(MAX_SHARE * len(functions)))
    if participles > limit:
        yield (
            f"{name}: {participles} of {len(functions)} functions are named by a participle, "
            f"{limit} are allowed; Fix: name them by verbs (--participles lists them)"
        )


def files_below(place: Path) -> Iterator[Path]:
    """The files that are checked, in order."""
    found = [place] if place.is_file() else sorted(place.rglob("*"))
    for file in found:
        name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
        hidden = any(part.startswith((".", "__pycache__")) for part in Path(name).parts)
        if file.suffix in ENDINGS and not hidden and not name.startswith(EXEMPT):
            yield file


def check_words(path: Path) -> Iterator[str]:
    """The forbidden words of a file, each as ``path:line: text``."""
    shown = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
    for found, word in _matches(_NAMES, split_name(path.stem)):
        yield f"{shown}: {found[0]!r} in the file's name; write: {word.instead}"
    for line, text, is_name in _texts(path):
        for match, word in _matches(_NAMES if is_name else _PROSE, text):
            where = line + text.count("\n", 0, match.start())
            yield f"{shown}:{where}: {match[0]!r}; write: {word.instead}"


def _matches(
    words: list[tuple[re.Pattern[str], Word]], text: str
) -> Iterator[tuple[re.Match[str], Word]]:
    for pattern, word in words:
        for match in pattern.finditer(text):
            yield match, word


def _texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """What a reader reads, with its line: of a page all of it; of a source names and prose."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text, False
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "NAME":
            yield token.start[0], split_name(token.string), True
        elif kind in {"STRING", "COMMENT"} or kind.startswith("FSTRING"):
            yield token.start[0], token.string, False


def split_name(name: str) -> str:
    """The words of a name: ``RunGroupFigures`` and ``run_group_figures`` have the same."""
    return " ".join(_WORD.findall(name))


def _functions(files: list[Path]) -> Iterator[tuple[str, str]]:
    for file in files:
        if file.suffix == ".py":
            yield from functions_of(file)


def functions_of(path: Path) -> Iterator[tuple[str, str]]:
    """The functions of a file with their places; properties are states and not counted."""
    shown = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            yield f"{shown}:{node.lineno}", node.name


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name.endswith(("property", ".setter", "overload")) for name in names)


def is_participle(name: str) -> bool:
    """True for ``listed_runs`` and ``_told``: named by what was done, not by what it does."""
    if name in KNOWN_NAMES:
        return False
    word = name.strip("_").partition("_")[0]
    return word in _IRREGULAR or (word.endswith("ed") and word not in _NOT_PARTICIPLES)


if __name__ == "__main__":
    sys.exit(main())
