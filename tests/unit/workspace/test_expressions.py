"""Every regular expression of the product: time that follows the length of what it reads.

They are found in the sources, with the way each is used, and fed with repetitions of their own parts.
"""

import ast
import importlib
import os
import random
import re
import time
from functools import cache
from itertools import chain, islice
from pathlib import Path

ROOT = Path(__file__).parents[3]
# `make chaos` runs the full counts, every other run short ones with the same inputs each time.
FULL = int(os.environ.get("LEX_CHAOS_ROUNDS", "5")) >= 50
COUNT = 3_000 if FULL else 25
SEED = int(os.environ.get("LEX_CHAOS_SEED", "14"))
LENGTH = 10_000
SECONDS = 0.1  # of processor time for so many characters
WAYS = {
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "search": lambda pattern, text: pattern.search(text),
    **dict.fromkeys(
        ("sub", "subn", "split", "findall", "finditer"),
        lambda pattern, text: [None for _ in pattern.finditer(text)],
    ),
}
# Made while the program runs; what they read is short, or they are tested where they are used.
MADE_LATER = {
    "lexigram.config.sources": "scalars of YAML: test_fuzzed_inputs.py reads any YAML",
    "lexigram.queue.backends.sqs._bodies": "names of queues, at most 80 characters",
}


def sources():
    for package in sorted(ROOT.glob("lexigram*/src")):
        for file in sorted(package.rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if "import re\n" in text or "re.Pattern" in text:
                yield ".".join(file.relative_to(package).with_suffix("").parts), ast.parse(text)


def calls_of_re(tree):
    for node in ast.walk(tree):
        function = getattr(node, "func", None)
        if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "re":
            yield node


def uses(trees, name):
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and node.attr in WAYS
    }


@cache
def expressions():
    """(where, pattern, way): each pattern of a module, and each that is written in a call."""
    trees = dict(sources())
    texts = [(tree, ast.unparse(tree)) for tree in trees.values()]
    found, later = [], set()
    for module, tree in trees.items():
        named = set()
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, re.Pattern) and any(
                name == getattr(target, "id", None)
                for node in tree.body
                if isinstance(node, ast.Assign | ast.AnnAssign)
                for target in getattr(node, "targets", None) or [node.target]
            ):
                named.add(name)
                others = [other for other, text in texts if f"import {name}" in text]
                ways = uses([tree, *others], name) or {"finditer"}
                found += ((f"{module}.{name}", value, way) for way in sorted(ways))
        for node in calls_of_re(tree):
            way, given = node.func.attr, node.args[0]
            if way == "escape" or (
                way == "compile" and any(_made_by(tree, n, node) for n in named)
            ):
                continue
            if way == "compile" or not isinstance(given, ast.Constant):
                later.add(module)
                continue
            found.append((f"{module}:{given.value!r}", re.compile(given.value), way))
    assert later == MADE_LATER.keys()
    return found


def _made_by(tree, name, call):
    return any(
        call in ast.walk(node)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and name
        in {getattr(t, "id", None) for t in getattr(node, "targets", None) or [node.target]}
    )


def test_no_expression_repeats_a_group_possessively():
    """Python 3.11.2, which Debian 12 has, takes ``assword`` for the name of a secret after one."""
    found = {
        where: value.pattern if isinstance(value.pattern, str) else value.pattern.decode("latin-1")
        for where, value, _ in expressions()
    }
    wrong = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]*\})\+")
    assert [where for where, pattern in found.items() if wrong.search(pattern)] == []


def parts_of(pattern):
    """The letters and words a pattern is made of, one member of each of its classes among them."""
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    parsed = re._parser.parse(pattern.pattern, flags)
    letters, words = set(), set()

    def walk(item):
        word = ""
        for operation, argument in item:
            if operation is re._constants.LITERAL:
                word += chr(argument)
                letters.add(chr(argument))
                continue
            words.add(word)
            word = ""
            if operation is re._constants.IN:
                for kind, member in argument:
                    if kind is re._constants.LITERAL:
                        letters.add(chr(member))
                    elif kind is re._constants.RANGE:
                        letters.add(chr(member[0]))
                continue
            for inner in chain([argument], argument if isinstance(argument, tuple) else ()):
                if isinstance(inner, re._parser.SubPattern):
                    walk(inner)
                elif isinstance(inner, list):
                    for branch in inner:
                        if isinstance(branch, re._parser.SubPattern):
                            walk(branch)
        words.add(word)

    walk(parsed)
    return sorted(words - {""}), sorted(letters | set("aA0 _\n"))


def hostile(chance, pattern):
    """A few parts again and again, behind and before something else."""
    words, letters = parts_of(pattern)
    pieces = [*letters, *words, *words]
    some = lambda least, most: "".join(  # noqa: E731
        chance.choice(pieces) for _ in range(chance.randint(least, most))
    )
    while True:
        again = some(1, 5)
        text = (
            some(0, 3)
            + again * (LENGTH // len(again))
            + some(0, 3)
            + chance.choice(["", "!", "\0"])
        )
        yield text.encode() if isinstance(pattern.pattern, bytes) else text


def seconds_of(way, pattern, text):
    """Processor time; the least of three where one is slow."""
    least = float("inf")
    for _ in range(3):
        began = time.thread_time()
        WAYS[way](pattern, text)
        least = min(least, time.thread_time() - began)
        if least <= SECONDS:
            break
    return least


def test_every_expression_reads_hostile_texts_in_time():
    slow, checked = {}, 0
    for where, pattern, way in expressions():
        checked += 1
        texts = hostile(random.Random(f"{SEED} {where} {way}"), pattern)
        for text in islice(texts, COUNT):
            seconds = seconds_of(way, pattern, text)
            if seconds > SECONDS:
                slow[f"{where}.{way}"] = f"{seconds:.2f} s for {text[:60]!r}"
                break
    assert slow == {}
    assert checked > 70
