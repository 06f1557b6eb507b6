"""``lexigram serve``: run an application and answer HTTP for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lexigram.cli.context import CommandContext

if TYPE_CHECKING:
    from lexigram.app import Application
    from lexigram.di import Provider
    from lexigram.web import WebConfig

app = typer.Typer()


@app.command()
def serve(
    ctx: CommandContext,
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

    session = ctx.obj
    application = session.load(target, background=True)
    config = _host_config(application)
    for provider in application.providers:
        provider.run_worker = worker
    session.configure_logging()

    async def run() -> None:
        from lexigram.web import WebHost
        from lexigram.web.host import listen

        # Before anything boots: what is wrong with keys, host and port is exit code 2.
        with await listen(config, host=host, port=port) as bound:

            async def work() -> None:
                web = application.container.get(WebHost)
                async with web.serving(bound=bound) as address:
                    data = {"url": address.url, "host": address.host, "port": address.port}
                    session.output.line(f"{application.name} listens on {address.url}", data)
                    await anyio.sleep_forever()

            await application.serve(work)

    anyio.run(run)


def _host_config(application: Application) -> WebConfig:
    """How the application wants to be served; one that does not say is served as configured."""
    from lexigram.cli.settings import read_config
    from lexigram.web import WebConfig, WebModule, WebProvider

    hosts: list[Provider] = [one for one in application.providers if isinstance(one, WebProvider)]
    if not hosts:
        application.add_module(WebModule)
    elif hosts[0].config is not None:  # given in code
        return hosts[0].config  # type: ignore[no-any-return]
    return read_config(application).get_section("web", WebConfig)
