"""``lexigram inspect``: inspect an application. Only ``health`` starts it."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.errors import CliError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.session import Session

if TYPE_CHECKING:
    from lexigram.di import Container

Target = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:APP", help="Default: the one named in pyproject.toml."),
]


class GraphFormat(StrEnum):
    """How a graph is written."""

    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


class GraphOf(StrEnum):
    """What the nodes of a graph are."""

    MODULES = "modules"
    OBJECTS = "objects"


app = typer.Typer(help="Inspect an application.")


@app.command()
def modules(ctx: CommandContext, target: Target = None) -> None:
    """The modules in import order: what each imports, provides and exports."""
    from lexigram.cli.diagrams import describe_module

    session = ctx.obj
    application = session.load(target)
    rows = [describe_module(node) for node in application.modules]
    columns = ("module", "imports", "providers", "exports", "global")
    session.output.table("modules", rows, columns)


@app.command()
def providers(ctx: CommandContext, target: Target = None) -> None:
    """The providers in boot order; those of one level boot side by side."""
    from lexigram.app._lifecycle import boot_levels, provider_entries

    session = ctx.obj
    container = _register(session, target)
    entries = provider_entries(container.modules)
    levels = boot_levels(entries, container.modules, container.bindings)
    rows = [
        _describe_provider(number, entry.provider, entry.node.name)
        for number, level in enumerate(levels, 1)
        for entry in level
    ]
    columns = ("level", "provider", "module", "priority", "dependencies", "required", "config")
    session.output.table("providers", rows, columns)


@app.command("container")
def show_container(
    ctx: CommandContext,
    target: Target = None,
    service: Annotated[
        str | None, typer.Argument(metavar="SERVICE", help="Explain this one binding.")
    ] = None,
) -> None:
    """Every binding: service, lifetime, and where it was registered."""
    session = ctx.obj
    if target and service is None and ":" not in target:
        target, service = None, target
    container = _register(session, target)
    if service is not None:
        _explain(session, container, service)
        return
    rows = container.graph().to_dict()["nodes"]
    columns = ("service", "lifetime", "module", "provider", "site")
    session.output.table("bindings", rows, columns)


@app.command()
def graph(
    ctx: CommandContext,
    target: Target = None,
    of: Annotated[GraphOf, typer.Option("--of", help="What to draw.")] = GraphOf.OBJECTS,
    form: Annotated[
        GraphFormat, typer.Option("--format", help="How to draw it.")
    ] = GraphFormat.MERMAID,
) -> None:
    """The graph of modules or objects, to be drawn."""
    from lexigram.cli.diagrams import ModuleGraphDiagram

    session = ctx.obj
    if of is GraphOf.MODULES:
        application = session.load(target)
        graph: Any = ModuleGraphDiagram(application.name, application.modules)
    else:
        graph = _register(session, target).graph()
    if form is GraphFormat.JSON:
        session.output.json = True
    text = graph.dot() if form is GraphFormat.DOT else graph.mermaid()
    session.output.text(text, graph.to_dict())


@app.command()
def config(ctx: CommandContext, target: Target = None) -> None:
    """The settings in effect and where each came from; the same as ``config show``."""
    from lexigram.cli.commands.config import show_config

    session = ctx.obj
    show_config(session, session.load(target))


@app.command()
def health(ctx: CommandContext, target: Target = None) -> None:
    """Start the application, ask every component, stop it; exit code 4 when unhealthy."""
    import anyio

    from lexigram.cli.checks import check_health
    from lexigram.contracts.core.health import HealthStatus

    session = ctx.obj
    application = session.load(target)
    session.configure_logging(quiet=True)
    report = anyio.run(check_health, application, session.contributors)
    columns = ("component", "status", "message", "error", "duration_ms")
    session.output.table("components", report.components, columns, status=report.status.value)
    if report.status is HealthStatus.UNHEALTHY:
        raise typer.Exit(ExitCode.UNHEALTHY)


def _register(session: Session, target: str | None) -> Container:
    """The checked container; nothing is built or started."""
    import anyio

    return anyio.run(session.load(target).register)


def _describe_provider(level: int, provider: Any, module: str) -> dict[str, Any]:
    return {
        "level": level,
        "provider": provider.name,
        "class": f"{type(provider).__module__}.{type(provider).__qualname__}",
        "module": module,
        "priority": int(provider.priority),
        "dependencies": [*provider.dependencies, *provider.optional_dependencies],
        "required": provider.required,
        "boot_timeout": provider.boot_timeout,
        "config": provider.config_key,
    }


def _explain(session: Session, container: Container, service: str) -> None:
    """A private binding is explained as its own module sees it."""
    found = [binding for binding in container.bindings if binding.name == service]
    if not found:
        names = sorted({binding.name for binding in container.bindings})
        near = get_close_matches(service, names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
        raise CliError(f"nothing is bound as {service}", hint=hint)
    texts = [container.of_node(item.module).explain(item.key) for item in found]
    data = {"service": service, "explanations": texts}
    session.output.text("\n\n".join(texts), data)
