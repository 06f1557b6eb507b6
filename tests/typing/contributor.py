# pyright: strict
from collections.abc import Sequence

import typer

from lexigram.cli.context import CommandContext
from lexigram.cli.contributors import BaseCliContributor
from lexigram.contracts.cli import (
    CommandContribution,
    DoctorCheckContribution,
    DoctorResult,
    DoctorStatus,
)


class ShopCliContributor(BaseCliContributor):
    def get_commands(self) -> Sequence[CommandContribution]:
        return [
            CommandContribution(
                name="stock",
                help="Show the stock.",
                app_factory_path="shop_cli:stock_commands",
                contributor=self.contributor_id,
            )
        ]

    def get_doctor_checks(self) -> Sequence[DoctorCheckContribution]:
        return [
            DoctorCheckContribution(
                name="scales", check_path="shop_cli:check_scales", contributor=self.contributor_id
            )
        ]


def stock_commands() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True)
    app.command()(count)
    app.command()(articles)
    return app


def count(ctx: CommandContext, article: str) -> None:
    """Show how many of an article there are."""
    ctx.obj.output.text(f"{article}: 7", {"article": article, "number": 7})


def articles(ctx: CommandContext) -> None:
    """Show all articles."""
    ctx.obj.output.table("articles", [{"name": "tea"}, {"name": "pot"}], ["name"])


def check_scales() -> DoctorResult:
    return DoctorResult(DoctorStatus.WARNING, "the scales are off", hint="switch them on")
