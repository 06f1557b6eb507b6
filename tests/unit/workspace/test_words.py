"""tools/words.py finds what the rules of this project's language forbid, and nothing else."""

from pathlib import Path

import pytest
import words


def problems_of(folder: Path, text: str, name: str = "page.md") -> list[str]:
    (folder / name).write_text(text)
    return list(words.check_words(folder / name))


@pytest.mark.parametrize(
    "text",
    [
        "the bus tells no figures",
        "group: %d in hand go to others",
        "How many letters there are; old when it arrives.",
        "While somebody waits in hold_lock, no step gets the key: he is next.",
        "What is in the index as it is now is left alone.",
        "With --watch: seconds between two looks.",
        "Make, run and look into applications.",
        "a workflow is not in order:",
        "the reducer of 'k' is X, which is none",
        "the worker tells its supervisor",
        "fill it: lexigram ingest PATH",
    ],
)
def test_prose_that_a_reader_would_have_to_decode_is_found(tmp_path: Path, text: str) -> None:
    assert problems_of(tmp_path, text)


@pytest.mark.parametrize(
    "code",
    [
        "class IngestionFigures: ...",
        "class JobTeller: ...",
        "def poke(): ...",
        "OF_OTHERS = 1",
        "told = 1",
        "x = f'{count} figures'",
        "# the seed's names",
        '"""It is told once."""',
    ],
)
def test_a_name_is_found_in_any_spelling_and_so_are_strings_and_comments(
    tmp_path: Path, code: str
) -> None:
    assert problems_of(tmp_path, code, "module.py")


def test_the_name_of_a_file_is_checked(tmp_path: Path) -> None:
    assert problems_of(tmp_path, "", "picture.py")


@pytest.mark.parametrize(
    "text",
    [
        "Dead letters are kept for two weeks.",
        "A random seed makes the run repeatable.",
        "The heartbeat is written every five seconds.",
        "It may work with an older server.",
        "Queue statistics are unavailable.",
    ],
)
def test_plain_english_passes(tmp_path: Path, text: str) -> None:
    assert not problems_of(tmp_path, text)


def test_a_problem_has_its_line_and_what_to_write(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "fine\n\nqueue figures\n")
    assert problem.endswith("page.md:3: 'figures'; write: statistics, numbers, a metric")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("listed_runs", True),
        ("_told", True),
        ("made", True),
        ("embed", False),
        ("list_runs", False),
    ],
)
def test_a_function_named_by_a_participle_is_told_from_a_verb(name: str, expected: bool) -> None:
    assert words.is_participle(name) is expected


def test_a_folder_may_have_no_more_problems_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part").mkdir()
    problems_of(tmp_path / "part", "told")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "ALLOWED", {"part": 1})
    assert not list(words.check_folder("part"))
    problems_of(tmp_path / "part", "told, told")
    (problem,) = words.check_folder("part")
    assert problem.startswith("part: 2 problems, 1 are allowed")
