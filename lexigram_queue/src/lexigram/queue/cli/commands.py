"""``lexigram queue``: inspect the bus, publish, pause groups, redrive dead letters."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.output import format_facts
from lexigram.cli.session import Session, session_of
from lexigram.cli.values import parse_value

if TYPE_CHECKING:
    from lexigram.contracts.queue import BusMessage, DeadLetterEntry
    from lexigram.queue.bus import BusQueue
    from lexigram.queue.operations.control import BusControl, GroupStatistics
    from lexigram.queue.operations.dead_letters import DeadLetterFilter

T = TypeVar("T")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic, or pattern of a group.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="Application. Default: the one named in pyproject.toml.",
    ),
]
Backend = Annotated[
    str | None, typer.Option("--backend", "-b", help="Backend. Default: the primary one.")
]
AnyBackend = Annotated[
    str | None, typer.Option("--backend", "-b", help="Only this backend. Default: all.")
]
Group = Annotated[
    str | None, typer.Option("--group", "-g", help="Group; required when the topic has several.")
]
OneGroup = Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")]
OneTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of rows.")
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        help="Only this reason: retries_exhausted, poison, expired, undecodable, rejected or "
        "not_retryable.",
    ),
]
ErrorText = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only errors that contain this text.")
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of messages.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]

app = typer.Typer(
    help="Inspect the bus, publish, pause groups, redrive dead letters.", no_args_is_help=True
)
dlq = typer.Typer(help="List, show, redrive and purge dead letters.", no_args_is_help=True)
app.add_typer(dlq, name="dlq")


# Inspect.


@app.command()
def ls(ctx: typer.Context, backend: AnyBackend = None, target: Target = None) -> None:
    """List topics and groups with depth, lag, dead letters and state."""
    session = session_of(ctx)
    rows = _run(session, target, lambda control: _groups(session, control, backend))
    columns = ("backend", "topic", "group", "depth", "lag", "dead_letters", "state")
    session.output.table("groups", rows, columns)


@app.command()
def lag(
    ctx: typer.Context,
    backend: AnyBackend = None,
    above: Annotated[
        int | None,
        typer.Option("--max", min=0, help="Exit with code 4 when the lag of a group exceeds this."),
    ] = None,
    target: Target = None,
) -> None:
    """Show consumer lag per group, largest first."""
    session = session_of(ctx)
    rows = _run(session, target, lambda control: _groups(session, control, backend))
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
    """Show messages that wait for a group, next ones first, without taking them."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[dict[str, Any]]:
        _require_shared(control, backend)
        meant = await control.group_of(topic, group, backend)
        found = await control.peek(topic, meant, backend=backend, limit=limit)
        return [_describe(message) for message in found]

    rows = _run(session, target, work)
    session.output.table("messages", rows, ("id", "sent", "priority", "retry_count", "payload"))


@app.command()
def tail(
    ctx: typer.Context,
    topic: Topic,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many messages.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.0, help="Stop after this many seconds.")
    ] = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Show messages as they are published, until Ctrl-C, without taking them from any group.

    With --json one document per line. It uses a temporary group, which is removed at the end.
    """
    import anyio

    session = session_of(ctx)

    async def work(control: BusControl) -> None:
        _require_shared(control, backend)
        with anyio.move_on_after(seconds):
            async with control.tail(topic, backend=backend) as messages:
                session.output.note(f"watching {topic}")
                left = limit
                async for message in messages:
                    row = _describe(message)
                    text = f"{row['sent']}  {row['id']}  {row['payload']}"
                    session.output.line(text, row)
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    _run(session, target, work)


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
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header; may be repeated."),
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="Id of the message. Default: a new one.")
    ] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", min=0.0, help="Seconds before delivery.")
    ] = None,
    ttl: Annotated[
        float | None, typer.Option("--ttl", min=0.0, help="Time to live, in seconds.")
    ] = None,
    priority: Annotated[
        int, typer.Option("--priority", help="Priority, 0 to 9; higher is more urgent.")
    ] = 0,
    ordering_key: Annotated[
        str | None,
        typer.Option("--ordering-key", help="Messages of one key are delivered in order."),
    ] = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Publish one message and print its id once the broker has confirmed it."""
    from uuid import uuid4

    from lexigram.contracts.queue import BusMessage, InvalidMessageError
    from lexigram.contracts.queue.headers import ORDERING_KEY
    from lexigram.contracts.queue.limits import check_delay, check_message, check_topic

    session = session_of(ctx)
    message = BusMessage(
        id=str(uuid4()) if message_id is None else message_id,
        payload=_payload(payload),
        headers=_headers(headers) | ({} if ordering_key is None else {ORDERING_KEY: ordering_key}),
        ttl=ttl,
        priority=priority,
    )
    try:
        check_topic(topic)
        check_message(message)
        if delay is not None:
            check_delay(delay)
    except InvalidMessageError as error:
        raise CliError(error.message, details=error.details, hint=error.hint) from error

    async def work(control: BusControl) -> dict[str, Any]:
        queue = _require_shared(control, backend)
        sent = await queue.publish(topic, message, delay=delay)
        return {"id": sent.id, "topic": topic, "backend": queue.name}

    facts = _run(session, target, work)
    session.output.text(facts["id"], facts)


@app.command()
def pause(
    ctx: typer.Context,
    topic: Topic,
    group: OneGroup = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Pause delivery to the groups of a topic, in all processes, until they are resumed."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[str]:
        _require_shared(control, backend)
        return await control.pause(topic, group, backend=backend)

    _print_state(session, topic, "paused", _run(session, target, work))


@app.command()
def resume(
    ctx: typer.Context,
    topic: Topic,
    group: OneGroup = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Resume delivery to the groups of a topic."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[str]:
        _require_shared(control, backend)
        return await control.resume(topic, group, backend=backend)

    _print_state(session, topic, "running", _run(session, target, work))


@app.command()
def purge(
    ctx: typer.Context,
    topic: Topic,
    group: Group = None,
    yes: Yes = False,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Delete the messages that wait for a group, permanently; messages in flight stay."""
    session = session_of(ctx)
    _confirm(session, f"delete all waiting messages of {topic}", yes)

    async def work(control: BusControl) -> dict[str, Any]:
        _require_shared(control, backend)
        meant = await control.group_of(topic, group, backend)
        count = await control.purge(topic, meant, backend=backend)
        return {"topic": topic, "group": meant, "purged": count}

    facts = _run(session, target, work)
    session.output.text(f"purged {facts['purged']} messages of {facts['group']}", facts)


@app.command()
def bench(
    ctx: typer.Context,
    messages: Annotated[
        int,
        typer.Option("--messages", "-n", min=1, max=1_000_000, help="Maximum number of messages."),
    ] = 10_000,
    size: Annotated[
        int, typer.Option("--size", min=0, max=1_000_000, help="Payload size in bytes.")
    ] = 200,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=600.0, help="Maximum duration, in seconds.")
    ] = 30.0,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", "-c", min=1, max=1000, help="Number of concurrent handlers."),
    ] = 4,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Measure messages per second on a temporary topic."""
    from lexigram.queue.cli.bench import measure

    session = session_of(ctx)

    async def work(control: BusControl) -> dict[str, Any]:
        queue = control.queue(backend)
        return await measure(
            queue, count=messages, size=size, seconds=seconds, concurrency=concurrency
        )

    facts = _run(session, target, work)
    session.output.facts({key.replace("_", " "): value for key, value in facts.items()}, facts)


# Dead letters.


@dlq.command("ls")
def dlq_ls(
    ctx: typer.Context,
    topic: OneTopic = None,
    group: OneGroup = None,
    reason: Reason = None,
    error: ErrorText = None,
    limit: Limit = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Skip this many.")] = 0,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """List dead letters by group, oldest first."""
    session = session_of(ctx)
    wanted = _filter(None, topic, group, reason, error)

    async def work(control: BusControl) -> list[dict[str, Any]]:
        _require_shared(control, backend)
        dead_letters = control.dead_letters(backend)
        found = await dead_letters.list(wanted, limit=limit, offset=offset)
        return [_describe_dead_letter(entry) for entry in found]

    rows = _run(session, target, work)
    shown = [{**row, "error": row["error"].partition("\n")[0][:60]} for row in rows]
    columns = ("id", "topic", "group", "reason", "attempts", "failed", "error")
    session.output.table("dead letters", rows if session.output.json else shown, columns)


@dlq.command()
def show(
    ctx: typer.Context,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the message.")],
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Show a dead letter with its message, error and traceback, once per group."""
    session = session_of(ctx)

    async def work(control: BusControl) -> list[dict[str, Any]]:
        _require_shared(control, backend)
        found = await control.dead_letters(backend).get(message_id)
        if not found:
            raise CliError(
                f"unknown dead letter {message_id!r}",
                hint="lexigram queue dlq ls lists dead letters",
            )
        return [_describe_dead_letter(entry) for entry in found]

    rows = _run(session, target, work)
    session.output.text("\n\n".join(map(format_facts, rows)), {"dead letters": rows})


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
        float | None, typer.Option("--rate", min=0.001, help="Maximum number per second.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of dead letters.")
    ] = None,
    backend: Backend = None,
    target: Target = None,
) -> None:
    """Redrive dead letters to the groups they came from: by id, by filter, or --all."""
    session = session_of(ctx)
    wanted = _require_filter(ids, everything, topic, group, reason, error)

    async def work(control: BusControl) -> int:
        _require_shared(control, backend)
        dead_letters = control.dead_letters(backend)
        with _progress(session, "redriven") as progress:
            return await dead_letters.redrive(wanted, rate=rate, limit=limit, progress=progress)

    count = _run(session, target, work)
    _print_count(session, ids, count, "redriven", "redriven")


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
    """Delete dead letters permanently: by id, by filter, or --all."""
    session = session_of(ctx)
    wanted = _require_filter(ids, everything, topic, group, reason, error)
    _confirm(session, "delete these dead letters", yes)

    async def work(control: BusControl) -> int:
        _require_shared(control, backend)
        with _progress(session, "purged") as progress:
            return await control.dead_letters(backend).purge(wanted, progress=progress)

    count = _run(session, target, work)
    _print_count(session, ids, count, "purged", "purged")


# Parts.


def _run(session: Session, target: str | None, work: Callable[[BusControl], Awaitable[T]]) -> T:
    """Start the application, do the work, stop it."""
    from lexigram.queue.di.provider import QueueProvider
    from lexigram.queue.operations.control import BusControl

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


def _require_shared(control: BusControl, backend: str | None) -> BusQueue:
    """The queue, unless its broker is in memory: another process cannot inspect that."""
    from lexigram.queue.operations.control import is_in_process

    queue = control.queue(backend)
    if is_in_process(queue):
        raise CliError(
            f"backend {queue.name} keeps its messages in the memory of the process that runs the "
            "application; this process cannot read them",
            hint="use driver sql, which needs no server, or the console of the running application",
        )
    return queue


async def _groups(
    session: Session, control: BusControl, backend: str | None
) -> list[dict[str, Any]]:
    from lexigram.queue.operations.control import is_in_process

    hidden = [queue.name for queue in control.queues(backend) if is_in_process(queue)]
    if hidden:
        session.output.warn(
            f"{', '.join(hidden)} in memory: each process has its own, so its statistics are unavailable here"
        )
    return [_row(one, one.backend in hidden) for one in await control.groups(backend)]


def _row(one: GroupStatistics, is_hidden: bool) -> dict[str, Any]:
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
    from lexigram.queue.operations.dead_letters import DeadLetterFilter

    known = [one.value for one in DeadLetterReason]
    if reason is not None and reason not in known:
        raise CliError(f"unknown reason {reason!r}", hint=f"one of {', '.join(known)}")
    return DeadLetterFilter(
        ids=frozenset(ids) if ids else None,
        topic=topic,
        group=group,
        reason=None if reason is None else DeadLetterReason(reason),
        error=error,
    )


def _require_filter(
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
            "no dead letters selected",
            hint="give ids, a filter such as --topic or --reason, or --all",
        )
    if ids and everything:
        raise CliError("ids and --all contradict each other", hint="give one of them")
    return _filter(ids, topic, group, reason, error)


@contextmanager
def _progress(session: Session, what: str) -> Generator[Callable[[int], None] | None, None, None]:
    with session.output.progress(what) as update:
        yield None if update is None else lambda count: update(what, completed=count)


def _confirm(session: Session, what: str, yes: bool) -> None:
    if yes:
        return
    if session.output.json or not sys.stdin.isatty():
        raise CliError(f"this would {what} permanently", hint="confirm it with --yes")
    if not session.output.confirm(f"This will {what} permanently. Continue?"):
        raise typer.Exit(ExitCode.FAILURE)


def _print_state(session: Session, topic: str, state: str, groups: list[str]) -> None:
    text = "\n".join(f"{topic} {group} is {state}" for group in groups)
    session.output.text(text, {"topic": topic, "groups": groups, "state": state})


def _print_count(
    session: Session, ids: Sequence[str] | None, count: int, action: str, key: str
) -> None:
    session.output.text(f"{count} dead letters {action}", {key: count})
    if ids and not count:
        raise typer.Exit(ExitCode.FAILURE)  # a script that names ids has to detect it


def _payload(text: str) -> Any:
    return parse_value(sys.stdin.read() if text == "-" else text)


def _headers(given: Sequence[str] | None) -> dict[str, str]:
    found = dict[str, str]()
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise CliError(f"--header {item!r} is not of the form NAME=VALUE")
        found[name] = value
    return found


def _describe(message: BusMessage) -> dict[str, Any]:
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


def _describe_dead_letter(entry: DeadLetterEntry) -> dict[str, Any]:
    description = _describe(entry.message)
    return {
        "id": description.pop("id"),
        "topic": description.pop("topic"),
        "group": entry.group,
        "reason": entry.reason.value,
        "error": entry.error,
        "attempts": entry.attempts,
        "failed": entry.failed_at.isoformat(timespec="seconds"),
        **description,
        "traceback": entry.traceback,
    }
