import subprocess
import sys

import pytest

from lexigram.cli import CliError
from lexigram.cli.commands.new import package_name


def test_a_new_application_has_at_most_ten_files(lex, folder):
    data = lex("new", "my-shop", "--json").data
    there = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert sorted(data["files"]) == there
    assert len(there) <= 10
    assert data["app"] == "my_shop.app:app"
    assert data["folder"] == "my-shop"


def test_a_new_application_says_what_to_do_next(lex):
    shown = lex("new", "depot")
    assert shown.code == 0
    assert "lexigram run depot.app:app" in shown.out


def test_every_generated_module_compiles_and_names_are_filled_in(lex, folder):
    lex("new", "depot")
    for path in (folder / "depot").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert "$" not in text
            if path.suffix == ".py":
                compile(text, str(path), "exec")


def test_generated_code_is_formatted_and_clean_for_the_linter(lex, folder):
    lex("new", "depot")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,I,B,UP", "."]
    subprocess.run(ruff, cwd=folder / "depot", check=True, capture_output=True)
    form = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "100"]
    subprocess.run([*form, "--check", "."], cwd=folder / "depot", check=True, capture_output=True)


def test_a_folder_with_files_is_refused_without_force(lex, write, folder):
    mine = write("depot/notes.txt", "mine")
    refused = lex("new", "depot")
    assert refused.code == 2
    assert "depot has files already" in refused.err
    assert [path.name for path in (folder / "depot").iterdir()] == ["notes.txt"]
    assert lex("new", "depot", "--force").code == 0
    assert mine.read_text() == "mine"
    assert (folder / "depot" / "pyproject.toml").exists()


def test_an_empty_folder_is_fine(lex, folder):
    (folder / "depot").mkdir()
    assert lex("new", "depot").code == 0


def test_a_file_in_the_way_is_refused(lex, write):
    write("depot", "x")
    assert "depot is a file" in lex("new", "depot").err


@pytest.mark.parametrize("name", ["my-shop", "my_shop", "Shop2", "a"])
def test_good_names_become_packages(name):
    assert package_name(name) == name.replace("-", "_").lower()


@pytest.mark.parametrize("name", ["", "2shop", "my shop", "shop-", "a--b", "../x", "schön", "_x"])
def test_a_name_that_cannot_be_a_package_is_refused(name):
    with pytest.raises(CliError, match="cannot be the name of an application"):
        package_name(name)


@pytest.mark.parametrize("name", ["json", "class", "lexigram", "tests", "Import"])
def test_a_name_that_would_hide_a_module_is_refused(name):
    with pytest.raises(CliError, match="would hide the module"):
        package_name(name)
