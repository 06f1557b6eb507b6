"""``lexigram schedule``: look at the schedules of an application, pause, resume and run them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.errors import CliError
from lexigram.cli.session import Session
from lexigram.config.escape import escape_line

if TYPE_CHECKING:
    from datetime import datetime

    from lexigram.contracts.infra.schedule import Firing, Schedule, ScheduleInfo
    from lexigram.schedule import Scheduler


def _check_name(value: str) -> str:
    """Exit code 2 for a name that no schedule can have."""
    from lexigram.contracts.infra.schedule.errors import InvalidScheduleError
    from lexigram.contracts.infra.schedule.types import check_schedule_name

    try:
        check_schedule_name(value)
    except InvalidScheduleError as error:
        raise typer.BadParameter(error.message) from None
    return value


Name = Annotated[str, typer.Argument(metavar="NAME", callback=_check_name, help="The schedule.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="The application. Default: the one named in pyproject.toml.",
    ),
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many ticks.")]

app = typer.Typer(help="Look at schedules, pause, resume and run them.")


@app.command()
def ls(ctx: CommandContext, target: Target = None) -> None:
    """Every schedule: when it fires, what it starts, and its next tick."""
    session = ctx.obj

    async def work(scheduler: Scheduler) -> list[dict[str, Any]]:
        return [_describe(info) for info in await scheduler.schedules()]

    rows = _run_with_scheduler(session, target, work)
    session.output.table("schedules", rows, ("name", "when", "starts", "state", "next", "last"))


@app.command()
def show(ctx: CommandContext, name: Name, target: Target = None) -> None:
    """One schedule with all its settings and its latest firings."""
    session = ctx.obj

    async def work(scheduler: Scheduler) -> dict[str, Any]:
        info = await _find_schedule(scheduler, name)
        fired = [_describe_firing(firing) for firing in await scheduler.firings(name)]
        return {**_describe(info), **_settings(info), "firings": fired}

    facts = _run_with_scheduler(session, target, work)
    shown = {key: value for key, value in facts.items() if key != "firings" and value}
    fired = [
        "  ".join(
            escape_line(str(value)) for value in firing.values() if value not in {None, False}
        )
        for firing in facts["firings"]
    ]
    session.output.facts({**shown, "firings": "\n".join(["", *fired])}, facts)


@app.command()
def pause(ctx: CommandContext, name: Name, target: Target = None) -> None:
    """Fire no more ticks until it is resumed; also after a restart."""
    session = ctx.obj

    async def work(scheduler: Scheduler) -> dict[str, Any]:
        return _describe(await scheduler.pause(name))

    session.output.text(f"{name} is paused", _run_with_scheduler(session, target, work))


@app.command()
def resume(ctx: CommandContext, name: Name, target: Target = None) -> None:
    """Fire again, from the next tick on; ticks of the pause are not made up for."""
    session = ctx.obj

    async def work(scheduler: Scheduler) -> dict[str, Any]:
        return _describe(await scheduler.resume(name))

    facts = _run_with_scheduler(session, target, work)
    session.output.text(f"{name} is {facts['state']}, next {facts['next']}", facts)


@app.command()
def run(ctx: CommandContext, name: Name, target: Target = None) -> None:
    """Fire once, now. A callback is run by a running application that has it."""
    session = ctx.obj

    async def work(scheduler: Scheduler) -> dict[str, Any]:
        return _describe_firing(await scheduler.run_now(name))

    facts = _run_with_scheduler(session, target, work)
    made = f", made {facts['reference']}" if facts["reference"] else ", waits for an application"
    session.output.text(f"{name} fired{made}", facts)


@app.command("next")
def upcoming(ctx: CommandContext, name: Name, count: Count = 5, target: Target = None) -> None:
    """The next ticks: in the zone of the schedule, in local time and in UTC."""
    session = ctx.obj

    async def work(scheduler: Scheduler) -> list[dict[str, Any]]:
        schedule = (await _find_schedule(scheduler, name)).schedule
        return [_describe_tick(tick, schedule) for tick in await scheduler.upcoming(name, count)]

    rows = _run_with_scheduler(session, target, work)
    session.output.table("ticks", rows, ("zone_time", "local_time", "utc"), schedule=name)


def _run_with_scheduler(
    session: Session, target: str | None, work: Callable[[Scheduler], Awaitable[Any]]
) -> Any:
    """Start the application, do the work, stop it."""
    from lexigram.schedule import ScheduleProvider, Scheduler

    application = session.load(target)
    if not any(isinstance(item, ScheduleProvider) for item in application.providers):
        raise CliError(
            f"{application.name} has no schedules",
            hint="add ScheduleModule.configure(schedules=[...]) to its modules",
        )

    async def call(scheduler: Scheduler) -> Any:
        return await work(scheduler)

    call.__annotations__ = {"scheduler": Scheduler}  # read by the container at run time
    return session.run(call)


async def _find_schedule(scheduler: Scheduler, name: str) -> ScheduleInfo:
    from lexigram.contracts.infra.schedule import ScheduleNotFoundError

    info = await scheduler.get(name)
    if info is not None:
        return info
    from difflib import get_close_matches

    names = [each.schedule.name for each in await scheduler.schedules()]
    near = get_close_matches(name, names, n=1)
    raise ScheduleNotFoundError(
        f"there is no schedule {name!r}",
        details={"schedule": name},
        hint=f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names) or 'none'}",
    )


def _describe(info: ScheduleInfo) -> dict[str, Any]:
    return {
        "name": info.schedule.name,
        "when": _when(info.schedule),
        "starts": _starts(info.schedule),
        "state": info.state.value,
        "next": _text(info.next_tick),
        "due": _text(info.due_at),
        "last": _text(info.last_tick),
        "origin": info.origin.value,
        "owner": info.owner,
        "failures": info.failures,
        "last_error": info.last_error,
    }


def _settings(info: ScheduleInfo) -> dict[str, Any]:
    schedule = info.schedule
    return {
        "description": schedule.description,
        "timezone": schedule.timezone,
        "start": _text(schedule.start),
        "end": _text(schedule.end),
        "jitter": schedule.jitter,
        "misfire": schedule.misfire.value,
        "grace": schedule.grace,
        "catch_up": schedule.catch_up,
    }


def _describe_firing(firing: Firing) -> dict[str, Any]:
    return {
        "tick": _text(firing.tick),
        "fired": _text(firing.fired_at),
        "state": firing.state.value,
        "manual": firing.manual,
        "reference": firing.reference,
        "error": firing.error,
    }


def _when(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.timezone}"
    if schedule.every is not None:
        return f"every {schedule.every:g} s"
    return f"at {_text(schedule.at)}"


def _starts(schedule: Schedule) -> str:
    from lexigram.contracts.infra.schedule import JobTarget, MessageTarget

    if isinstance(schedule.target, JobTarget):
        return f"job {schedule.target.name}"
    if isinstance(schedule.target, MessageTarget):
        return f"message {schedule.target.topic}"
    return f"callback {schedule.target.name}"


def _describe_tick(tick: datetime, schedule: Schedule) -> dict[str, Any]:
    from lexigram.schedule.zones import zone

    return {
        "zone_time": f"{tick.astimezone(zone(schedule.timezone)):%a %Y-%m-%d %H:%M:%S %z}",
        "local_time": f"{tick.astimezone():%a %Y-%m-%d %H:%M:%S %z}",
        "utc": _text(tick),
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
