"""``lexigram ingest`` and ``lexigram search``, command by command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.e2e.ai.conftest import artifacts, rows
from tests.samples.make import lighthouse_pdf
from tests.unit.ai.test_documents import sealed

from lexigram.app import discovery
from lexigram.cli import ExitCode

DATA = Path(".lexigram")


def write(folder, **texts):
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(f"# About {name}\n\n{text}\n\n## More\n\nSo much.\n")
    return folder


@pytest.fixture
def notes(tmp_path):
    return write(
        tmp_path / "notes",
        tides="The harbour falls dry twice a day.",
        bread="Feed the starter with rye flour.",
        slugs="Runner ducks eat slugs.",
    )


def test_a_folder_is_ingested_and_its_passages_are_found(lex, notes):
    said = lex("ingest", notes)
    assert said.code == 0
    assert "3 files: 3 indexed, 0 unchanged, 0 failed" in said.out
    [best, *_] = lex("search", "rye flour for the starter", "--json").data["results"]
    assert best["source"] == str(notes / "bread.md")
    assert best["heading_path"] == "About bread"
    assert best["score"] > 0
    shown = lex("search", "rye flour for the starter", "-k", "1").out
    assert "1. notes/bread.md" in shown
    assert "About bread" in shown
    assert "Feed the starter" in shown


def test_what_is_in_the_index_is_left_alone(lex, notes):
    lex("ingest", notes)
    again = lex("ingest", notes, "--json")
    assert again.code == 0
    assert again.data["group"] is None
    told = {key: again.data[key] for key in ("indexed", "unchanged", "embedded", "chunks")}
    assert told == {"indexed": 0, "unchanged": 3, "embedded": 0, "chunks": 0}


def test_a_changed_file_costs_the_passages_that_changed(lex, notes):
    text = "\n\n".join(f"## Part {n}\n\n" + f"Sentence {n} of the bread. " * 60 for n in range(4))
    write(notes, bread=text)
    lex("ingest", notes)
    write(notes, bread=text.replace("Sentence 2", "Another 2"))
    changed = lex("ingest", notes, "--json").data
    assert (changed["indexed"], changed["unchanged"]) == (1, 2)
    assert changed["cache_hits"] > 0
    assert 0 < changed["embedded"] < changed["chunks"]
    [best, *_] = lex("search", "Another 2 of the bread", "--json").data["results"]
    assert "Another 2" in best["passage"]


def test_missing_files_are_reported_and_removed_on_request(lex, notes, tmp_path):
    lex("ingest", notes)
    blobs = len(artifacts(DATA))
    (notes / "slugs.md").unlink()
    told = lex("ingest", notes)
    assert "1 file is in the index but no longer at the paths; remove with --prune" in told.out
    assert lex("ingest", notes, "--prune", "--json").data["removed"] == 1
    sources = {
        one["source"] for one in lex("search", "slugs", "-k", "50", "--json").data["results"]
    }
    assert sources == {str(notes / "tides.md"), str(notes / "bread.md")}
    assert len(artifacts(DATA)) == blobs * 2 // 3
    assert lex("ingest", notes, "--prune", "--json").data["removed"] == 0


def test_an_index_that_was_deleted_is_made_again_without_the_model(lex, notes):
    lex("ingest", notes)
    shutil.rmtree(DATA / "lancedb")
    again = lex("ingest", notes, "--json").data
    assert (again["indexed"], again["embedded"]) == (3, 0)
    assert len(anyio.run(rows, DATA)) == again["chunks"]


@pytest.fixture
def bad(tmp_path):
    """One good file and nine bad ones, by the words that must be in the reason."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "good.md").write_text("# Good\n\nThis one can be read.\n")
    (folder / "empty.txt").touch()
    (folder / "report.txt").write_bytes(lighthouse_pdf())
    (folder / "cut.pdf").write_bytes(lighthouse_pdf()[:700])
    (folder / "sealed.pdf").write_bytes(sealed(lighthouse_pdf()))
    with (folder / "large.txt").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    (folder / "latin.csv").write_bytes(b"name;town\nJos\xe9;C\x81rdoba\n")
    secret = tmp_path / "secret.txt"
    secret.write_text("outside")
    (folder / "link.txt").symlink_to(secret)
    if os.geteuid():
        (folder / "closed.txt").write_text("closed")
        (folder / "closed.txt").chmod(0)
    else:  # root may read everything
        os.mkfifo(folder / "closed.txt")
    (folder / "noise.txt").write_bytes(bytes(range(256)) * 4)
    return folder


def test_each_bad_file_is_named_with_its_reason_and_the_good_one_is_indexed(lex, bad):
    said = lex("ingest", bad, "--json")
    assert said.code == ExitCode.PARTIAL
    assert said.data["indexed"] == 1
    reasons = {Path(one["file"]).name: one["reason"] for one in said.data["failures"]}
    wanted = {
        "empty.txt": "empty (0 bytes)",
        "report.txt": "its content is",
        "cut.pdf": "cut.pdf",
        "sealed.pdf": "password",
        "large.txt": "104,857,600 bytes",
        "latin.csv": "latin.csv",
        "link.txt": "is outside ",
        "closed.txt": "cannot read",
        "noise.txt": "noise.txt",
    }
    assert reasons.keys() == wanted.keys()
    for name, words in wanted.items():
        assert words in reasons[name]
    assert {one.metadata["uri"] for one in anyio.run(rows, DATA)} == {str(bad / "good.md")}
    again = lex("ingest", bad)
    assert again.code == ExitCode.PARTIAL
    assert "10 files: 0 indexed, 1 unchanged, 9 failed" in again.out
    assert "sealed.pdf" in again.out
    assert "failed permanently" not in again.err  # it is in the table, with its reason
    assert len(lex("ingest", "status", "--json").data["ingestions"][0]["failures"]) == 9


def test_an_ingestion_of_which_nothing_came_out_is_a_failure(lex, tmp_path):
    (tmp_path / "empty.txt").touch()
    said = lex("ingest", "empty.txt")
    assert said.code == ExitCode.FAILURE
    assert "0 bytes" in said.out


def test_only_names_that_are_asked_for_are_ingested(lex, notes):
    (notes / "picture.png").write_bytes(b"\x89PNG")
    assert lex("ingest", notes, "--include", "*.md").code == 0


def test_what_is_not_there_is_refused_before_anything_is_stored(lex, notes):
    said = lex("ingest", "nowhere")
    assert (said.code, "path not found: nowhere" in said.err) == (ExitCode.USAGE, True)
    said = lex("ingest", notes, "--workflow", "btach")
    assert said.code == ExitCode.FAILURE
    assert "btach" in said.err
    assert artifacts(DATA) == []


def test_a_search_where_nothing_was_ingested_says_so_and_makes_nothing(lex, tmp_path):
    said = lex("search", "bread", "--data", "elsewhere")
    assert said.code == ExitCode.USAGE
    assert "no index found in elsewhere" in said.err
    assert "lexigram ingest PATH" in said.err
    assert not (tmp_path / "elsewhere").exists()


def test_the_database_of_an_ingestion_is_found_without_its_folder(lex, notes):
    lex("ingest", notes)
    [database] = lex("lancedb", "list", "--json").data["databases"]
    assert (database["database"], database["rows"] > 0) == ("default", True)


def test_status_shows_every_set_of_paths_and_the_index(lex, notes):
    lex("ingest", notes)
    lex("ingest", notes / "bread.md")
    facts = lex("ingest", "status", "--json").data
    assert [one["paths"] for one in facts["ingestions"]] == [
        [str(notes / "bread.md")],
        [str(notes)],
    ]
    assert {one["status"] for one in facts["ingestions"]} == {"COMPLETED"}
    assert facts["index"]["documents"] == 3
    assert facts["index"]["model_id"].startswith("hashing")
    assert "COMPLETED" in lex("ingest", "status").out


def test_a_folder_named_status_is_ingested(lex, tmp_path):
    write(tmp_path / "status", report="All is well.")
    assert lex("ingest", "./status", "--json").data["indexed"] == 1
    assert lex("ingest", "status/", "--json").data["unchanged"] == 1
    assert lex("ingest", "status", "status/report.md", "--json").data["files"] == 1
    said = lex("ingest", "status")
    assert said.code == 0
    assert "./status" in said.out + said.err
    assert lex("ingest", "status", "--json").data["index"]["documents"] == 1


def test_status_is_narrowed_by_the_collection_and_refuses_other_options(lex, notes):
    lex("ingest", notes)
    lex("ingest", notes / "bread.md", "--collection", "garden")
    facts = lex("ingest", "status", "--collection", "garden", "--json").data
    assert [one["collection"] for one in facts["ingestions"]] == ["garden"]
    assert facts["index"]["collection"] == "garden"
    assert facts["index"]["documents"] == 1
    assert len(lex("ingest", "status", "--json").data["ingestions"]) == 2
    said = lex("ingest", "status", "--prune", "--watch")
    assert said.code == ExitCode.USAGE
    assert "does not take --prune, --watch" in said.err


def test_status_counts_all_files_of_the_paths_and_names_each_reason_once(lex, notes):
    (notes / "empty.txt").touch()
    (notes / "loop.md").symlink_to(notes / "loop.md")
    first = lex("ingest", notes, "--json")
    assert first.code == ExitCode.PARTIAL
    assert (first.data["status"], first.data["indexed"], first.data["failed"]) == ("PARTIAL", 3, 2)
    for _ in range(2):
        [told] = lex("ingest", "status", "--json").data["ingestions"]
        figures = {key: told[key] for key in ("status", "files", "completed", "pending", "failed")}
        assert figures == {
            "status": "PARTIAL",
            "files": 5,
            "completed": 3,
            "pending": 0,
            "failed": 2,
        }
        assert sorted(Path(one["file"]).name for one in told["failures"]) == [
            "empty.txt",
            "loop.md",
        ]
        again = lex("ingest", notes, "--json")  # only what failed is tried again
        assert (again.data["status"], again.data["unchanged"]) == ("PARTIAL", 3)
    lex("ingest", notes, "--collection", "other")
    shown = lex("ingest", "status").out
    assert shown.count("0 bytes") == 1
    (notes / "empty.txt").unlink()
    (notes / "loop.md").unlink()
    assert lex("ingest", notes, "--json").data["status"] == "COMPLETED"
    told = lex("ingest", "status", "--json").data["ingestions"]
    assert [one["failed"] for one in told if one["collection"] is None] == [0]
    assert [one["completed"] for one in told if one["collection"] is None] == [3]


def test_a_text_with_an_unknown_suffix_is_ingested(lex, notes):
    (notes / "howto.adoc").write_text("= Compost\n\nTurn the heap in spring.\n")
    (notes / "photo.raw").write_bytes(bytes(range(256)))
    said = lex("ingest", notes, "--json")
    assert said.data["indexed"] == 4
    [failure] = said.data["failures"]
    assert Path(failure["file"]).name == "photo.raw"
    assert lex("search", "compost heap", "--json").data["results"]


def test_a_search_can_be_narrowed_and_go_by_words(lex, notes):
    lex("ingest", notes)
    found = lex("search", "slugs", "--filter", "uri=notes/tides.md", "--json").data
    assert {one["source"] for one in found["results"]} == {str(notes / "tides.md")}
    for how in ("--words", "--hybrid"):
        data = lex("search", "ducks", how, "-k", "1", "--json").data
        assert [one["source"] for one in data["results"]] == [str(notes / "slugs.md")]
    assert lex("search", "ducks", "--filter", "page").code == ExitCode.USAGE
    assert lex("search", "ducks", "--words", "--hybrid").code == ExitCode.USAGE
    assert "no results" in lex("search", "xylophone", "--words").out


def test_a_collection_and_a_database_of_ones_own(lex, notes, monkeypatch):
    monkeypatch.setenv("LEX_AI_WORKERS__VECTORS__DATABASE", "mine")
    assert lex("ingest", notes, "--collection", "garden").code == 0
    assert lex("ingest", notes, "--collection", "garden", "--json").data["unchanged"] == 3
    assert (DATA / "lancedb" / "mine" / "garden.lance").is_dir()
    found = lex("search", "ducks", "--words", "--collection", "garden", "--json").data
    assert len(found["results"]) == 1
    assert lex("ingest", notes, "--json").data["indexed"] == 3


def test_a_search_starts_nothing_that_it_does_not_use(lex, notes):
    lex("ingest", notes)
    unused = ("sqlalchemy", "opendal", "lexigram.workflow.module", "lexigram.di", "lexigram.tasks")
    program = (
        "import sys; from lexigram.cli.main import main; code = main(['search', 'ducks']); "
        f"print(*(name for name in {unused!r} if name in sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "ducks" in done.stdout
    assert done.stderr.split() == []


def test_a_search_without_an_index_says_how_to_make_one(lex):
    said = lex("search", "anything")
    assert said.code == ExitCode.USAGE
    assert "lexigram ingest PATH" in said.err


def test_a_search_with_another_model_names_both(lex, notes, monkeypatch):
    lex("ingest", notes)
    monkeypatch.setenv("LEX_AI_WORKERS__EMBEDDINGS__PROVIDER", "wordllama")
    said = lex("search", "ducks")
    assert said.code == ExitCode.USAGE
    assert "hashing" in said.err
    assert "wordllama" in said.err
    assert lex("search", "ducks", "--words").code == 0


def test_without_the_workflow_package_the_error_names_the_extra(lex, notes, monkeypatch):
    monkeypatch.setattr(discovery, "entry_points", lambda group: [])
    said = lex("ingest", notes)
    assert said.code == ExitCode.USAGE
    assert "lexigram-ai-workers[durable]" in said.err


APPLICATION = """
from lexigram.ai.workers import WorkersConfig, WorkersModule
from lexigram.ai.workers.embeddings import EmbeddingConfig
from lexigram.ai.workers.vectors import VectorConfig
from lexigram.app import Application
from lexigram.blobs import BlobConfig, BlobModule
from lexigram.sql import SqlConfig, SqlModule
from lexigram.workflow import WorkflowModule


def create() -> Application:
    workers = WorkersConfig(
        embeddings=EmbeddingConfig(provider="hashing"), vectors=VectorConfig(path="own/lancedb")
    )
    return Application("shelf", modules=[
        SqlModule.configure(SqlConfig(url="sqlite:///own.db")),
        BlobModule.configure(BlobConfig(root="own/blobs")),
        WorkflowModule, WorkersModule.configure(workers),
    ])


def poor() -> Application:
    return Application("poor", modules=[WorkersModule.stub()])
"""


def test_an_application_of_the_project_is_used_when_it_is_named(lex, notes, tmp_path, monkeypatch):
    monkeypatch.delenv("LEX_AI_WORKERS__EMBEDDINGS__PROVIDER")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shelf_of_test.py").write_text(APPLICATION)
    assert lex("ingest", notes, "--app", "shelf_of_test:create").code == 0
    assert not DATA.exists()
    found = lex("search", "ducks", "--words", "--app", "shelf_of_test:create", "--json").data
    assert len(found["results"]) == 1
    said = lex("ingest", notes, "--app", "shelf_of_test:poor")
    assert said.code == ExitCode.USAGE
    assert "lexigram-ai-workers[durable]" in said.err
    sys.modules.pop("shelf_of_test")
