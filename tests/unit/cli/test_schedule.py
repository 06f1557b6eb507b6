"""``lexigram schedule``: what it shows and changes, and that it fires nothing itself."""

import pytest

NOBODY_FIRES = """
from pathlib import Path

from lexigram.app import Application
from lexigram.schedule import ScheduleConfig, ScheduleModule, scheduled
from lexigram.sql import SqlConfig, SqlModule


@scheduled("30 2 * * *", name="nightly", timezone="Europe/Berlin", end=None)
async def nightly():
    '''Tidy up.'''


@scheduled(every=0.1, name="often")
async def often():
    open("fired", "w").close()


def create() -> Application:
    return Application(
        "shop",
        modules=[
            SqlModule.configure(SqlConfig(url=f"sqlite:///{Path(__file__).parent}/shop.db")),
            ScheduleModule.configure(ScheduleConfig(), schedules=[nightly, often]),
        ],
    )
"""


@pytest.fixture
def shop(write):
    write("shop.py", NOBODY_FIRES)
    write("plain.py", 'from lexigram.app import Application\napp = Application("plain")\n')


@pytest.fixture
def schedule(lex, shop):
    return lambda *arguments: lex("schedule", *arguments, "--app", "shop:create")


def test_ls_shows_every_schedule_and_fires_none(schedule, folder):
    shown = schedule("ls")
    assert shown.code == 0, shown.err
    assert "30 2 * * * Europe/Berlin" in shown.out
    assert "callback often" in shown.out
    data = schedule("ls", "--json").data["schedules"]
    assert [row["name"] for row in data] == ["nightly", "often"]
    assert {row["state"] for row in data} == {"active"}
    assert not (folder / "fired").exists()


def test_pause_and_resume_last_beyond_the_command(schedule):
    assert schedule("pause", "nightly").out == "nightly is paused\n"
    assert schedule("show", "nightly", "--json").data["state"] == "paused"
    assert schedule("resume", "nightly").out.startswith("nightly is active, next 20")
    assert schedule("show", "nightly", "--json").data["state"] == "active"


def test_run_leaves_a_callback_to_a_running_application(schedule, folder):
    assert schedule("run", "often").out == "often fired, waits for an application\n"
    data = schedule("show", "often", "--json").data
    assert [(firing["state"], firing["manual"]) for firing in data["firings"]] == [
        ("pending", True)
    ]
    assert not (folder / "fired").exists()


def test_show_lists_settings_for_people(schedule):
    schedule("run", "nightly")
    shown = schedule("show", "nightly")
    assert "description: Tidy up." in shown.out
    assert "misfire: fire_once" in shown.out
    assert "pending  True" in shown.out


def test_next_previews_ticks_in_zone_local_and_utc(schedule):
    data = schedule("next", "nightly", "-n", "3", "--json").data
    assert len(data["ticks"]) == 3
    for tick in data["ticks"]:
        assert set(tick) == {"zone_time", "local_time", "utc"}
        assert " 02:30:00 " in tick["zone_time"] or " 03:00:00 " in tick["zone_time"]
    assert "ZONE TIME" in schedule("next", "nightly").out


def test_an_unknown_name_is_refused_with_the_nearest(schedule):
    refused = schedule("next", "nightli")
    assert refused.code != 0
    assert "there is no schedule 'nightli'" in refused.err
    assert "did you mean 'nightly'?" in refused.err
    refused = schedule("pause", "x", "--json")
    assert refused.data["error"]["code"] == "LEX_ERR_SCHED_005"


def test_an_application_without_schedules_is_told_what_to_add(lex, shop):
    refused = lex("schedule", "ls", "--app", "plain:app")
    assert refused.code == 2
    assert "plain has no schedules" in refused.err
    assert "ScheduleModule.configure" in refused.err
