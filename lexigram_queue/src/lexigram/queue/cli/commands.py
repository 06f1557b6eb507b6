"""``lexigram queue``: look at the bus, publish, pause groups, send dead letters back."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session, session_of

if TYPE_CHECKING:
    from lexigram.contracts.queue import BusMessage, DeadLetterEntry
    from lexigram.queue.bus import BusQueue
    from lexigram.queue.control import BusControl, GroupFigures
    from lexigram.queue.dead_letters import DeadLetterFilter

T = TypeVar("T")

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic, or the pattern of a group.")
]
Target = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="The application. Default: the one named in pyproject.toml.",
    ),
]
Backend = Annotated[
    str | None, typer.Option("--backend", "-b", help="The backend. Default: the primary one.")
]
AnyBackend = Annotated[
    str | None, typer.Option("--backend", "-b", help="Of this backend only. Default: of all.")
]
Group = Annotated[
    str | None, typer.Option("--group", "-g", help="The group; needed where there are several.")
]
OneGroup = Annotated[str | None, typer.Option("--group", "-g", help="Of this group only.")]
OneTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Of this topic only.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", help="retries_exhausted, poison, expired, undecodable or rejected only."
    ),
]
ErrorText = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="With this text in the error only.")
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="These messages.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

app = typer.Typer(
    help="Look at the bus, publish, pause groups, send dead letters back.", no_args_is_help=True
)
dlq = typer.Typer(help="Look at dead letters, send them back, drop them.", no_args_is_help=True)
app.add_typer(dlq, name="dlq")


# Look.


@app.command()
def ls(ctx: typer.Context, backend: AnyBackend = None, target: Target = None) -> None:
    """Every topic and group with depth, lag, dead letters and state."""
    session = session_of(ctx)
    rows = _asked(session, target, lambda control: _groups(session, control, backend))
    columns = ("backend", "topic", "group", "depth", "lag", "dead_letters", "state")
    session.output.table("groups", rows, columns)


@app.command()
def lag(
    ctx: typer.Context,
    backend: AnyBackend = None,
    above: Annotated[
        int | None,
        typer.Option("--max", min=0, help="Exit code 4 when a group has more than this."),
    ] = None,
    target: Target = None,
) -> None:
    """What could be handled now and is not, the furthest behind first."""
    session = session_of(ctx)
    rows = _asked(session, target, lambda control: _groups(session, control, backend))
    rows.sort(key=lambda row: row["lag"] or 0, reverse=True)
    total = sum(row["lag"] or 0 for row in rows)
    columns = ("backend", "topic", "group", "lag", "depth", "state")
    session.output.table("groups", rows, columns, total=total)
    if above is not None and any((row["lag"] or 0) > above for row in rows):
        raise typer.Exit(ExitCode.UNHEALTHY)


@app.command()
def peek(
    ctx: typer.Context,
    topic: Topic,
    group: Group = None,
    limit: Limit = 10,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Messages that wait for a group, next ones first; takes none."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[dict[str, Any]]:
        _outside(control, backend)
        meant = await control.group_of(topic, group, backend)
        found = await control.peek(topic, meant, backend=backend, limit=limit)
        return [_described(message) for message in found]

    rows = _asked(session, target, work)
    session.output.table("messages", rows, ("id", "sent", "priority", "retry_count", "payload"))


@app.command()
def tail(
    ctx: typer.Context,
    topic: Topic,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="End after so many messages.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.0, help="End after this time.")
    ] = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Show what is published from now on, until Ctrl-C; takes nothing from any group.

    With --json one document a line. It has a group of its own, which is removed at the end.
    """
    import anyio

    session = session_of(ctx)

    async def work(control: BusControl) -> None:
        _outside(control, backend)
        with anyio.move_on_after(seconds):
            async with control.tail(topic, backend=backend) as messages:
                session.output.note(f"watching {topic}")
                left = limit
                async for message in messages:
                    row = _described(message)
                    text = f"{row['sent']}  {row['id']}  {row['payload']}"
                    session.output.line(text, row)
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    _asked(session, target, work)


# Act.


@app.command()
def publish(
    ctx: typer.Context,
    topic: Topic,
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON, else text; - reads standard input.")
    ],
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
    ] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Default: a new one.")] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", min=0.0, help="Seconds before it is delivered.")
    ] = None,
    ttl: Annotated[
        float | None, typer.Option("--ttl", min=0.0, help="Seconds it is valid.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher is more urgent.")] = 0,
    ordering_key: Annotated[
        str | None, typer.Option("--ordering-key", help="In order with others of this key.")
    ] = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Send one message; prints its id once the broker has confirmed it."""
    from uuid import uuid4

    from lexigram.contracts.queue import BusMessage

    session = session_of(ctx)
    message = BusMessage(
        id=message_id or str(uuid4()),
        payload=_payload(payload),
        headers=_headers(headers),
        ttl=ttl,
        priority=priority,
    )

    async def work(control: BusControl) -> dict[str, Any]:
        queue = _outside(control, backend)
        sent = await queue.publish(topic, message, delay=delay, ordering_key=ordering_key)
        return {"id": sent.id, "topic": topic, "backend": queue.name}

    facts = _asked(session, target, work)
    session.output.text(facts["id"], facts)


@app.command()
def pause(
    ctx: typer.Context,
    topic: Topic,
    group: OneGroup = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Hold the groups of a topic back, in all processes, until they are resumed."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[str]:
        _outside(control, backend)
        return await control.pause(topic, group, backend=backend)

    _told_state(session, topic, "paused", _asked(session, target, work))


@app.command()
def resume(
    ctx: typer.Context,
    topic: Topic,
    group: OneGroup = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Let the groups of a topic go on."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[str]:
        _outside(control, backend)
        return await control.resume(topic, group, backend=backend)

    _told_state(session, topic, "running", _asked(session, target, work))


@app.command()
def purge(
    ctx: typer.Context,
    topic: Topic,
    group: Group = None,
    yes: Yes = False,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Drop what waits for a group, for good; what is being handled stays."""
    session = session_of(ctx)
    _confirm(session, f"drop all messages of {topic} that wait", yes)

    async def work(control: BusControl) -> dict[str, Any]:
        _outside(control, backend)
        meant = await control.group_of(topic, group, backend)
        count = await control.purge(topic, meant, backend=backend)
        return {"topic": topic, "group": meant, "purged": count}

    facts = _asked(session, target, work)
    session.output.text(f"{facts['purged']} messages of {facts['group']} are gone", facts)


@app.command()
def bench(
    ctx: typer.Context,
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=1, max=1_000_000, help="How many at most.")
    ] = 10_000,
    size: Annotated[
        int, typer.Option("--size", min=0, max=1_000_000, help="Bytes of a payload.")
    ] = 200,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=600.0, help="For how long at most.")
    ] = 30.0,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, max=1000, help="Handlers at a time.")
    ] = 4,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Publish and handle messages on a topic of its own, which is removed; messages per second."""
    from lexigram.queue.cli.bench import measure

    session = session_of(ctx)

    async def work(control: BusControl) -> dict[str, Any]:
        queue = control.queue(backend)
        return await measure(
            queue, count=messages, size=size, seconds=seconds, concurrency=concurrency
        )

    facts = _asked(session, target, work)
    shown = (f"{key.replace('_', ' ')}: {value}" for key, value in facts.items())
    session.output.text("\n".join(shown), facts)


# Dead letters.


@dlq.command("ls")
def dlq_ls(
    ctx: typer.Context,
    topic: OneTopic = None,
    group: OneGroup = None,
    reason: Reason = None,
    error: ErrorText = None,
    limit: Limit = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Leave out so many first.")] = 0,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Dead letters, group by group, oldest first."""
    session = session_of(ctx)
    wanted = _filter(None, topic, group, reason, error)

    async def work(control: BusControl) -> list[dict[str, Any]]:
        _outside(control, backend)
        letters = control.dead_letters(backend)
        found = await letters.list(wanted, limit=limit, offset=offset)
        return [_letter(entry) for entry in found]

    rows = _asked(session, target, work)
    shown = [{**row, "error": row["error"].partition("\n")[0][:60]} for row in rows]
    columns = ("id", "topic", "group", "reason", "attempts", "failed", "error")
    session.output.table("dead letters", rows if session.output.json else shown, columns)


@dlq.command()
def show(
    ctx: typer.Context,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message.")],
    backend: Backend = None,
    target: Target = None,
) -> None:
    """One dead letter with its message, error and traceback; one per group that set it aside."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[dict[str, Any]]:
        _outside(control, backend)
        found = await control.dead_letters(backend).get(message_id)
        if not found:
            raise CliError(
                f"there is no dead letter {message_id!r}",
                hint="lexigram queue dlq ls shows those there are",
            )
        return [_letter(entry) for entry in found]

    rows = _asked(session, target, work)
    shown = "\n\n".join(
        "\n".join(f"{key}: {value}" for key, value in row.items() if value not in (None, "", {}))
        for row in rows
    )
    session.output.text(shown, {"dead letters": rows})


@dlq.command()
def redrive(
    ctx: typer.Context,
    ids: Ids = None,
    everything: All = False,
    topic: OneTopic = None,
    group: OneGroup = None,
    reason: Reason = None,
    error: ErrorText = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="At most so many per second.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")
    ] = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Send dead letters back to the groups that set them aside: by id, by filter, or --all."""
    session = session_of(ctx)
    wanted = _chosen(ids, everything, topic, group, reason, error)

    async def work(control: BusControl) -> int:
        _outside(control, backend)
        letters = control.dead_letters(backend)
        with _progress(session, "redriven") as progress:
            return await letters.redrive(wanted, rate=rate, limit=limit, progress=progress)

    count = _asked(session, target, work)
    _told_count(session, ids, count, "sent back", "redriven")


@dlq.command("purge")
def dlq_purge(
    ctx: typer.Context,
    ids: Ids = None,
    everything: All = False,
    topic: OneTopic = None,
    group: OneGroup = None,
    reason: Reason = None,
    error: ErrorText = None,
    yes: Yes = False,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Drop dead letters for good: by id, by filter, or --all."""
    session = session_of(ctx)
    wanted = _chosen(ids, everything, topic, group, reason, error)
    _confirm(session, "drop these dead letters", yes)

    async def work(control: BusControl) -> int:
        _outside(control, backend)
        with _progress(session, "purged") as progress:
            return await control.dead_letters(backend).purge(wanted, progress=progress)

    count = _asked(session, target, work)
    _told_count(session, ids, count, "dropped", "purged")


# Parts.


def _asked(session: Session, target: str | None, work: Callable[[BusControl], Awaitable[T]]) -> T:
    """Start the application, do the work, stop it."""
    from lexigram.queue.control import BusControl
    from lexigram.queue.di.provider import QueueProvider

    application = session.load(target)
    if not any(isinstance(provider, QueueProvider) for provider in application.providers):
        raise CliError(
            f"{application.name} has no bus", hint="add QueueModule.configure() to its modules"
        )

    async def call(control: BusControl) -> T:
        return await work(control)

    # Read by the container at run time; above it is a name for the type checker only.
    call.__annotations__ = {"control": BusControl}
    done: T = session.run(call)
    return done


def _outside(control: BusControl, backend: str | None) -> BusQueue:
    """The queue, if its broker is not a part of each process: there is nothing to see from here."""
    from lexigram.queue.control import is_in_process

    queue = control.queue(backend)
    if is_in_process(queue):
        raise CliError(
            f"backend {queue.name} keeps its messages in the memory of the process that runs the "
            "application, and this is another one",
            hint="use driver sql, which needs no server, or the console of the running application",
        )
    return queue


async def _groups(
    session: Session, control: BusControl, backend: str | None
) -> list[dict[str, Any]]:
    from lexigram.queue.control import is_in_process

    hidden = [queue.name for queue in control.queues(backend) if is_in_process(queue)]
    if hidden:
        session.output.warn(
            f"{', '.join(hidden)} in memory: each process has its own, and its figures are not known"
        )
    return [_row(one, one.backend in hidden) for one in await control.groups(backend)]


def _row(one: GroupFigures, is_hidden: bool) -> dict[str, Any]:
    state = "unknown" if is_hidden else "paused" if one.is_paused else "running"
    return {
        "backend": one.backend,
        "driver": one.driver,
        "topic": one.topic,
        "group": one.group,
        "depth": None if is_hidden else one.depth,
        "lag": None if is_hidden else one.lag,
        "dead_letters": None if is_hidden else one.dead_letters,
        "state": state,
    }


def _filter(
    ids: Sequence[str] | None,
    topic: str | None,
    group: str | None,
    reason: str | None,
    error: str | None,
) -> DeadLetterFilter:
    from lexigram.contracts.queue import DeadLetterReason
    from lexigram.queue.dead_letters import DeadLetterFilter

    known = [one.value for one in DeadLetterReason]
    if reason is not None and reason not in known:
        raise CliError(f"there is no reason {reason!r}", hint=f"one of {', '.join(known)}")
    return DeadLetterFilter(
        ids=frozenset(ids) if ids else None,
        topic=topic,
        group=group,
        reason=None if reason is None else DeadLetterReason(reason),
        error=error,
    )


def _chosen(
    ids: Sequence[str] | None,
    everything: bool,
    topic: str | None,
    group: str | None,
    reason: str | None,
    error: str | None,
) -> DeadLetterFilter:
    has_filter = any(one is not None for one in (topic, group, reason, error))
    if not ids and not everything and not has_filter:
        raise CliError(
            "which dead letters?", hint="give ids, a filter such as --topic or --reason, or --all"
        )
    if ids and everything:
        raise CliError("ids and --all contradict each other", hint="give one of them")
    return _filter(ids, topic, group, reason, error)


@contextmanager
def _progress(session: Session, what: str) -> Generator[Callable[[int], None] | None, None, None]:
    """A counter for people at a terminal; for all others silence until the end."""
    if session.output.json or session.output.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, color_system="auto" if session.output.color else None)
    columns = (SpinnerColumn(), TextColumn("{task.completed} {task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        counter = progress.add_task(what, total=None)
        yield lambda count: progress.update(counter, completed=count)


def _confirm(session: Session, what: str, yes: bool) -> None:
    if yes:
        return
    if session.output.json or not sys.stdin.isatty():
        raise CliError(f"this would {what}, for good", hint="--yes says that this is wanted")
    if not typer.confirm(f"This will {what}, for good. Go on?", err=True):
        raise typer.Exit(ExitCode.FAILURE)


def _told_state(session: Session, topic: str, state: str, groups: list[str]) -> None:
    text = "\n".join(f"{topic} {group} is {state}" for group in groups)
    session.output.text(text, {"topic": topic, "groups": groups, "state": state})


def _told_count(
    session: Session, ids: Sequence[str] | None, count: int, told: str, key: str
) -> None:
    session.output.text(f"{count} dead letters {told}", {key: count})
    if ids and not count:
        raise typer.Exit(ExitCode.FAILURE)  # a script that named ids wants to know


def _payload(text: str) -> Any:
    import json

    body = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(body)
    except ValueError:
        return body


def _headers(given: Sequence[str] | None) -> dict[str, str]:
    found = dict[str, str]()
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise CliError(f"--header {item!r} is not of the form NAME=VALUE")
        found[name] = value
    return found


def _described(message: BusMessage) -> dict[str, Any]:
    from datetime import UTC, datetime

    sent = datetime.fromtimestamp(message.timestamp, UTC)
    return {
        "id": message.id,
        "topic": message.topic,
        "sent": sent.isoformat(timespec="milliseconds"),
        "payload": message.payload,
        "headers": message.headers,
        "priority": message.priority,
        "ttl": message.ttl,
        "retry_count": message.retry_count,
        "max_retries": message.max_retries,
    }


def _letter(entry: DeadLetterEntry) -> dict[str, Any]:
    described = _described(entry.message)
    return {
        "id": described.pop("id"),
        "topic": described.pop("topic"),
        "group": entry.group,
        "reason": entry.reason.value,
        "error": entry.error,
        "attempts": entry.attempts,
        "failed": entry.failed_at.isoformat(timespec="seconds"),
        **described,
        "traceback": entry.traceback,
    }
