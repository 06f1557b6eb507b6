"""Defects of the 0.1 line that have no natural home elsewhere; tests/regressions.md lists them all."""

import subprocess
import sys
from typing import Annotated

import anyio
import anyio.lowlevel
import pytest

from lexigram.app import Application
from lexigram.config import LexigramConfig
from lexigram.di import Container, Module, Named, Provider, module
from lexigram.di.errors import (
    AmbiguousDependencyError,
    ContainerValidationError,
    ModuleExportError,
    ModuleVisibilityError,
    ScopedResolutionError,
)


class Pool:
    pass


class Service:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool


async def test_concurrent_resolves_of_an_async_dependency_are_no_cycle_and_share_it():
    """core-1: two of three got a false "Svc -> Svc"."""
    built = []

    async def make_pool() -> Pool:
        await anyio.lowlevel.checkpoint()
        built.append(1)
        return Pool()

    container = Container("app")
    container.singleton(Pool, factory=make_pool)
    container.transient(Service)
    container.freeze()
    services = []

    async def ask():
        services.append(await container.resolve(Service))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert len(services) == 3
    assert len({service.pool for service in services}) == 1
    assert built == [1]


class PoolProvider(Provider):
    async def register(self, container) -> None:
        container.singleton(Pool)


class ServiceProvider(Provider):
    async def register(self, container) -> None:
        container.singleton(Service)


@module(providers=[PoolProvider])
class PrivatePool(Module):
    pass


@module(providers=[PoolProvider], exports=[Pool])
class PublicPool(Module):
    pass


@module(imports=[PrivatePool], providers=[ServiceProvider], exports=[Service])
class WantsPrivate(Module):
    pass


@module(imports=[PublicPool], providers=[ServiceProvider], exports=[Service])
class WantsPublic(Module):
    pass


@module(exports=[Pool])
class ExportsNothing(Module):
    pass


async def problems_of(*modules):
    with pytest.raises(ContainerValidationError) as caught:
        await Application("app", LexigramConfig(), modules=modules).start()
    return [problem.error for problem in caught.value.problems]


async def test_private_is_private_and_exported_is_visible_also_in_constructors():
    """core-2: it was the other way round, and constructors were never checked."""
    assert await problems_of(WantsPrivate) == [ModuleVisibilityError]
    async with Application("app", LexigramConfig(), modules=[WantsPublic]) as app:
        assert isinstance(app.container.get(Service).pool, Pool)


async def test_an_export_nobody_registers_is_refused():
    """core-2: it raised nothing."""
    assert await problems_of(ExportsNothing) == [ModuleExportError]


class OtherPoolProvider(PoolProvider):
    name = "other pool"


@module(providers=[OtherPoolProvider], exports=[Pool])
class OtherPool(Module):
    pass


@module(providers=[OtherPoolProvider])
class OtherPrivatePool(Module):
    pass


@module(imports=[PublicPool, OtherPool], providers=[ServiceProvider], exports=[Service])
class SeesTwo(Module):
    pass


async def test_a_consumer_that_could_see_two_is_refused_and_nothing_wins_silently():
    """core-2: the module registered last won."""
    assert await problems_of(SeesTwo) == [AmbiguousDependencyError]
    async with Application("app", LexigramConfig(), modules=[WantsPublic, OtherPrivatePool]) as app:
        theirs = app.container.of(OtherPrivatePool).get(Pool)
        assert app.container.get(Service).pool is not theirs


class Session:
    pass


class Repository:
    def __init__(self, session: Session) -> None:
        self.session = session


class Report:
    def __init__(self, repository: Repository, session: Session) -> None:
        self.repository, self.session = repository, session


async def test_scoped_and_transient_services_may_need_scoped_ones():
    """core-3: both failed inside an open scope."""
    container = Container("app")
    container.scoped(Session)
    container.scoped(Repository)
    container.transient(Report)
    async with container, container.scope() as scope:
        report = await scope.resolve(Report)
        assert report.repository.session is report.session
        assert await scope.resolve(Repository) is report.repository


async def test_a_singleton_may_need_a_transient_but_not_a_scoped_service():
    """core-3: a transient under a singleton was a boot error."""
    container = Container("app")
    container.transient(Pool)
    container.singleton(Service)
    container.freeze()
    assert isinstance(container.get(Service).pool, Pool)
    leaking = Container("app")
    leaking.scoped(Session)
    leaking.singleton(Repository)
    with pytest.raises(ContainerValidationError) as caught:
        leaking.freeze()
    assert [problem.error for problem in caught.value.problems] == [ScopedResolutionError]


async def test_a_factory_that_raises_type_error_is_called_once():
    """core-9: it was tried again without its argument."""
    calls = []

    def make() -> Pool:
        calls.append(1)
        raise TypeError("inside")

    container = Container("app")
    container.transient(Pool, factory=make)
    container.freeze()
    with pytest.raises(TypeError, match="inside"):
        await container.resolve(Pool)
    assert calls == [1]


class Shop:
    def __init__(self, first: Pool, second: Annotated[Pool, Named("second")]) -> None:
        self.pools = [first, second]


async def test_resolve_all_has_the_named_ones_too():
    """core-9: named registrations were left out."""
    container = Container("app")
    container.singleton(Pool)
    container.singleton(Pool, name="second")
    container.singleton(Shop)
    container.freeze()
    assert await container.resolve_all(Pool) == container.get(Shop).pools


PROGRAM = """
from lexigram.app import Application
from lexigram.di import Provider

class Part(Provider):
    async def boot(self, container):
        {boot}

app = Application("quiet", providers=[Part()])
app.run()
"""


def run_program(tmp_path, boot):
    (tmp_path / "program.py").write_text(PROGRAM.format(boot=boot))
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_boot_and_a_stop_print_at_most_three_lines(tmp_path):
    """core-10: ten lines and a banner."""
    itself = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    done = run_program(tmp_path, itself)
    assert done.returncode == 0, done.stderr
    assert len((done.stdout + done.stderr).splitlines()) <= 3


def test_a_failed_boot_shows_its_error_once(tmp_path):
    """core-10: the traceback was printed twice."""
    done = run_program(tmp_path, "raise KeyError('the part is missing')")
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("KeyError: ")]
    assert told == ["KeyError: 'the part is missing'"]
