"""Which files are found, and what is said about the others."""

import os
from pathlib import Path

import pytest

from lexigram.ai.workers.cli import files
from lexigram.ai.workers.cli.files import FailedFile, find_files, is_below, make_absolute
from lexigram.ai.workers.cli.ingestion import _find_missing


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.md").write_text("a")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("b")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "c.md").write_text("c")
    (tmp_path / ".d.md").write_text("d")
    return tmp_path


def found(*roots, **options):
    return find_files(
        [str(root) for root in roots], max_bytes=options.pop("max_bytes", 99), **options
    )


def test_everything_below_is_found_but_hidden_names(folder):
    names = [os.path.relpath(one.path, folder) for one in found(folder).files]
    assert names == ["a.md", "sub/b.txt"]


def test_a_hidden_name_that_is_given_is_taken(folder):
    assert len(found(folder / ".hidden").files) == 1
    assert len(found(folder / ".d.md").files) == 1


def test_a_file_in_two_roots_is_found_once(folder):
    assert len(found(folder, folder / "sub", folder / "a.md").files) == 2


def test_the_hash_is_that_of_the_content(folder):
    [one] = found(folder / "a.md").files
    assert one.hash == ("sha256-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")


def test_a_file_that_did_not_change_is_not_read_again(folder, monkeypatch):
    first = found(folder)
    known = {one.path: one for one in first.files}
    monkeypatch.setattr(files, "_hash", lambda path: f"read {path.name}")
    assert found(folder, known=known) == first
    (folder / "a.md").write_text("longer")
    assert [
        one.hash for one in found(folder, known=known).files if one.hash.startswith("read")
    ] == ["read a.md"]


def test_a_folder_that_cannot_be_read_is_named(folder, monkeypatch):
    real = os.scandir

    def scandir(path):
        if str(path) == str(folder / "sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    [bad] = found(folder).bad
    assert (bad.path, bad.error) == (str(folder / "sub"), "DocumentUnreadableError")
    assert "Permission denied" in bad.reason


def test_what_is_in_a_folder_that_cannot_be_read_is_not_gone(folder):
    sub = str(folder / "sub")
    unreadable = FailedFile(path=sub, step="find", error="DocumentUnreadableError", reason="")
    stored = {f"{sub}/b.txt": "", str(folder / "x.md"): "", str(folder / "a.md"): "", "/other": ""}
    seen = files.FileScan(files=found(folder / "a.md").files, bad=[unreadable])
    assert _find_missing(stored, [str(folder)], seen) == [str(folder / "x.md")]


def test_a_link_inside_of_the_root_is_followed_and_one_that_leads_out_is_refused(folder, tmp_path):
    root = folder / "sub"
    (root / "in.txt").symlink_to(root / "b.txt")
    (root / "out.md").symlink_to(folder / "a.md")
    (root / "away").symlink_to(folder / ".hidden")
    result = found(root)
    assert [Path(one.path).name for one in result.files] == ["b.txt", "in.txt"]
    assert {Path(one.path).name: one.error for one in result.bad} == {
        "out.md": "DocumentOutsideRootError",
        "away": "DocumentOutsideRootError",
    }
    allowed = found(root, allowed_roots=[str(folder)])
    assert [Path(one.path).name for one in allowed.files] == ["b.txt", "in.txt", "out.md"]


@pytest.mark.parametrize(
    ("name", "make", "error"),
    [
        ("large", lambda path: path.write_text("x" * 100), "DocumentTooLargeError"),
        ("pipe", os.mkfifo, "DocumentUnreadableError"),
        ("gone", lambda path: path.symlink_to(path.parent / "lost"), "DocumentMissingError"),
        ("loop", lambda path: path.symlink_to(path), "DocumentUnreadableError"),
    ],
)
def test_unreadable_documents_raise_an_error_by_cause(tmp_path, name, make, error):
    make(tmp_path / name)
    [bad] = found(tmp_path).bad
    assert (bad.step, bad.error) == ("find", error)
    assert name in bad.reason


def test_links_that_lead_to_themselves_keep_no_other_file_back(folder):
    (folder / "one").symlink_to(folder / "two")
    (folder / "two").symlink_to(folder / "one")
    (folder / "here").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    result = found(folder)
    assert [Path(one.path).name for one in result.files] == ["a.md", "b.txt"]
    reasons = {Path(one.path).name: one.reason for one in result.bad}
    assert reasons.keys() == {"one", "two", "here", "pipe"}
    assert {reason.count("cannot read") for reason in reasons.values()} == {1}
    assert "a link to itself" in reasons["one"]
    assert "a link to a folder" in reasons["here"]


def test_a_name_that_is_not_text_is_reported(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_text("x")
    [bad] = found(tmp_path).bad
    assert "UTF-8" in bad.reason


def test_a_path_has_one_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_absolute("a/../b") == make_absolute("b") == str(tmp_path / "b")
    assert is_below("/a/b", "/a")
    assert is_below("/a", "/a")
    assert is_below("/a", "/")
    assert not is_below("/ab", "/a")
