"""A folder to work in, the command line as a function, and packages that contribute to it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from lexigram.cli.contributors import registry
from lexigram.cli.main import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def without_our_packages(monkeypatch):
    """What the extensions of this repository contribute is tested with them, not here."""
    found = registry._installed

    def others():
        return [item for item in found() if not item.dist.name.startswith("lexigram-")]

    monkeypatch.setattr(registry, "_installed", others)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder; modules written there can be imported, and are forgotten after."""
    import os

    for name in [name for name in os.environ if name.startswith("LEX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def write(folder):
    def write(path, text):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(text), encoding="utf-8")
        return target

    return write


@pytest.fixture
def lex(folder, capsys):
    """Run the command line in this process: ``lex("inspect", "modules", "shop:app")``."""

    def run(*arguments):
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture
def contribute(folder, write, monkeypatch):
    """Install a package with one contributor, as an installer would leave it behind."""
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(name, source, attribute="Contributor"):
        write(f"site/{name}.py", source)
        write(f"site/{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\n")
        write(
            f"site/{name}-1.0.dist-info/entry_points.txt",
            f"[lexigram.cli.contributors]\n{name} = {name}:{attribute}\n",
        )

    return install


@pytest.fixture
def shop(write):
    """A small application: two modules, a private service, settings with a secret."""
    write(
        "shop.py",
        """
        from typing import ClassVar, Protocol

        from attrs import field, frozen
        from lexigram.app import Application
        from lexigram.config import BaseConfig, secret
        from lexigram.di import Module, Provider, module


        @frozen(kw_only=True)
        class MailConfig(BaseConfig):
            config_section: ClassVar[str] = "mail"
            host: str = "localhost"
            port: int = 25
            password: str = field(default="", metadata=secret("Of the mail account."))


        class Mailer(Protocol):
            def send(self) -> str: ...


        class Smtp:
            def __init__(self, config: MailConfig) -> None:
                self.config = config

            def send(self) -> str:
                return "sent"


        class MailProvider(Provider):
            config_key = "mail"
            config_model = MailConfig

            async def register(self, container):
                container.singleton(MailConfig, self.config)
                container.singleton(Mailer, Smtp)


        @module(providers=[MailProvider], exports=[Mailer])
        class MailModule(Module):
            pass


        class Desk:
            def __init__(self, mailer: Mailer) -> None:
                self.mailer = mailer


        class DeskProvider(Provider):
            dependencies = ("mail",)
            required = False

            async def register(self, container):
                container.scoped(Desk)


        @module(imports=[MailModule], providers=[DeskProvider], exports=[Desk])
        class DeskModule(Module):
            pass


        def create() -> Application:
            return Application("shop", modules=[DeskModule])


        app = create()
        """,
    )
    return "shop:app"
