"""``lexigram serve``: run an application and answer HTTP for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lexigram.cli.session import Session

if TYPE_CHECKING:
    from lexigram.app import Application

app = typer.Typer()


@app.command()
def serve(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Default: the one named in pyproject.toml."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: web.host.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default: web.port; 0: a free one.")
    ] = None,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker/--no-worker", help="Work on durable runs in this process too, if it has any."
        ),
    ] = True,
) -> None:
    """Run an application and answer HTTP for it until SIGINT or SIGTERM, then drain.

    Standard output gets one line with the address once it listens, with --json as an object.
    A second signal ends the process at once.
    """
    import anyio

    session: Session = ctx.obj
    application = session.load(target)
    _with_host(application)
    for provider in application.providers:
        provider.run_worker = worker
    session.configure_logging()

    async def work() -> None:
        from lexigram.web import WebHost

        web = application.container.get(WebHost)
        async with web.serving(host=host, port=port) as address:
            data = {"url": address.url, "host": address.host, "port": address.port}
            session.output.line(f"{application.name} listens on {address.url}", data)
            await anyio.sleep_forever()

    anyio.run(application.serve, work)


def _with_host(application: Application) -> None:
    """An application that does not say how it wants to be served is served as configured."""
    from lexigram.web import WebModule, WebProvider

    if not any(isinstance(provider, WebProvider) for provider in application.providers):
        application.add_module(WebModule)
