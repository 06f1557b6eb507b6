"""Progress: figures in a line, not too often, and silence where it is asked for."""

import pytest

from lexigram.ai.workers.cli.display import display_progress, format_progress
from lexigram.ai.workers.cli.ingestion import Progress
from lexigram.ai.workers.statistics import IngestionStatistics
from lexigram.cli import Output
from lexigram.contracts.workflow.durable import RunGroupStats, RunStatus


def progress(seconds):
    stats = RunGroupStats(
        total_runs=10,
        completed=4,
        running=3,
        pending=2,
        failed=1,
        average_duration=None,
        group_status=RunStatus.RUNNING,
    )
    statistics = IngestionStatistics(embedded=50, cache_hits=7, stored=40, unchanged=0)
    return Progress(stats=stats, unchanged=5, refused=2, seconds=seconds, statistics=statistics)


def test_the_line_has_files_chunks_a_second_cache_hits_and_failures():
    assert format_progress(progress(8.0)) == "12/17 files, 40 chunks (5/s), 7 cache hits, 3 failed"


def test_without_a_terminal_a_line_comes_every_two_seconds(capsys):
    with display_progress(Output()) as report:
        for seconds in (0.5, 2.0, 3.9, 4.0, 4.1):
            report(progress(seconds))
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("output", [Output(json=True), Output(quiet=True)])
def test_nothing_is_shown_to_programs_and_to_who_wants_quiet(output, capsys):
    with display_progress(output) as report:
        report(progress(9.0))
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_one_live_line(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal gets no live line
    with display_progress(Output(color=False), at_once=False) as report:
        assert capsys.readouterr().err == ""
        report(progress(8.0))
    assert "12/17 files" in capsys.readouterr().err
