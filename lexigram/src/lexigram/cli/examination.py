"""The checks of ``lexigram doctor``; each gives one verdict and what to do about it."""

from __future__ import annotations

import inspect
import platform
import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from lexigram.cli.contributors.registry import load_contributed
from lexigram.cli.errors import ContributorError
from lexigram.cli.failures import describe_failure, summary
from lexigram.cli.installed import installed_distributions, lexigram_distributions, missing_extras
from lexigram.cli.session import Session
from lexigram.concurrency import call_sync
from lexigram.contracts.cli import DoctorCheckContribution, DoctorResult, DoctorStatus

if TYPE_CHECKING:
    from lexigram.app import Application

_OK, _WARNING, _ERROR = DoctorStatus.OK, DoctorStatus.WARNING, DoctorStatus.ERROR
OLDEST_PYTHON = (3, 11)


def examine(session: Session) -> Iterator[tuple[str, DoctorResult]]:
    """(name, verdict) of every check, the contributed ones last. A check that raises failed."""
    checks: dict[str, Callable[[], DoctorResult]] = {
        "python": check_python,
        "packages": check_versions,
        "namespace": check_namespace,
        "extras": check_extras,
        "configuration": lambda: check_configuration(session),
        "application": lambda: check_application(session),
        "contributors": lambda: check_contributors(session),
    }
    for name, check in checks.items():
        yield name, _verdict(check)
    application = _get_registered(session)
    for item in session.contributors.doctor_checks.values():
        if not item.requires_app_context:
            yield item.name, _verdict(partial(_within, item.timeout, _wrap_contributed(item)))
        elif application is not None:
            check = _wrap_contributed(item, application)
            yield item.name, _verdict(partial(_within, item.timeout, check))


def check_python() -> DoctorResult:
    """Old interpreters cannot even import the framework; the message names the one that runs."""
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return DoctorResult(_ERROR, f"Python {version} is too old", f"use Python {oldest} or newer")
    return DoctorResult(_OK, f"Python {version} at {sys.executable}")


def check_versions() -> DoctorResult:
    """All distributions are released together and belong together."""
    installed = installed_distributions()
    versions = set(installed.values())
    listed = ", ".join(f"{name} {version}" for name, version in installed.items())
    if len(versions) > 1:
        hint = f"pip install --upgrade {' '.join(installed)}"
        return DoctorResult(_ERROR, f"versions differ: {listed}", hint, installed)
    return DoctorResult(_OK, f"{', '.join(installed)} {''.join(versions)}", None, installed)


def check_namespace() -> DoctorResult:
    """A file lexigram/__init__.py hides the other distributions."""
    import lexigram

    found = getattr(lexigram, "__file__", None)
    if found:
        text = f"{found} makes lexigram an ordinary package and hides the others"
        return DoctorResult(_ERROR, text, "remove that file, or the package that brought it")
    return DoctorResult(_OK, f"{len(list(lexigram.__path__))} places form lexigram")


def check_extras() -> DoctorResult:
    """What could be installed in addition; none of it is needed."""
    missing = {item.name: missing_extras(item) for item in lexigram_distributions()}
    absent = [f"{name}[{extra}]" for name, extras in missing.items() for extra in extras]
    if not absent:
        return DoctorResult(_OK, "every optional dependency is installed")
    return DoctorResult(
        _OK,
        f"not installed: {', '.join(absent)}",
        f"pip install '{absent[0]}' if you need it",
        missing,
    )


def check_configuration(session: Session) -> DoctorResult:
    """Files and variables can be read, and hold only what is known."""
    from lexigram.cli.settings import read_config

    try:
        application = session.optional_application(session.target)
    except Exception:  # noqa: BLE001 - its own check tells; the rest can still be checked
        application = None
    config = read_config(application)
    issues = config.validate_for_environment()
    if issues:
        worst = _ERROR if any(issue.severity == "error" for issue in issues) else _WARNING
        text = "; ".join(f"{issue.field} {issue.message}" for issue in issues)
        return DoctorResult(worst, text, issues[0].suggestion)
    return DoctorResult(_OK, f"valid for {config.env.value}")


def check_application(session: Session) -> DoctorResult:
    """The application can be imported and its object graph is valid."""
    import anyio

    application = session.optional_application(session.target)
    if application is None:
        return DoctorResult(_OK, "none is named here", "name one: lexigram doctor MODULE:APP")
    container = anyio.run(application.register)
    return DoctorResult(_OK, f"{application.name}: {len(container.bindings)} bindings, graph valid")


def check_contributors(session: Session) -> DoctorResult:
    """Every contributor loads, and so does all the code they name."""
    found = session.contributors
    wrong = [f"{item.contributor} ({item.source}): {item.reason}" for item in found.broken]
    for contributor, path in found.paths():
        try:
            load_contributed(contributor, path)
        except ContributorError as error:
            cause = summary(error.__cause__ or error)
            wrong.append(f"{contributor}: {path} cannot be loaded: {cause}")
    lost = [
        f"{item.kind} {item.name}: {item.winner} keeps it, {', '.join(item.losers)} lost it"
        for item in found.conflicts
    ]
    details = {"broken": wrong, "conflicts": lost}
    if wrong:
        hint = "update or remove the packages that bring them"
        return DoctorResult(_ERROR, "; ".join([*wrong, *lost]), hint, details)
    if lost:
        return DoctorResult(_WARNING, "; ".join(lost), "remove one of the packages", details)
    return DoctorResult(_OK, ", ".join(found.names) or "none installed", None, details)


def _get_registered(session: Session) -> Application | None:
    """The application that the check of it has registered, if it found nothing wrong."""
    try:
        application = session.optional_application(session.target)
        if application is not None and application.container.is_frozen:
            return application
    except Exception:  # noqa: BLE001 - its own check has reported it
        return None
    return None


def _wrap_contributed(
    item: DoctorCheckContribution, *args: Application
) -> Callable[[], DoctorResult]:
    def check() -> DoctorResult:
        import anyio

        result = load_contributed(item.contributor, item.check_path)(*args)
        if inspect.isawaitable(result):

            async def wait() -> Any:
                return await result

            result = anyio.run(wait)
        if not isinstance(result, DoctorResult):
            raise TypeError(f"{item.check_path} returned {result!r}, not a DoctorResult")
        return replace(result, status=DoctorStatus(result.status))

    return check


def _within(seconds: float, check: Callable[[], DoctorResult]) -> DoctorResult:
    """Run a check of others; one that hangs is left behind in its thread."""
    verdicts: list[DoctorResult] = []

    def examine() -> None:
        try:
            verdicts.append(_verdict(check))
        except KeyboardInterrupt as error:  # raised by the check: signals reach the main thread
            verdicts.append(_build_failure(error))

    work = partial(copy_context().run, examine)
    thread = Thread(target=work, name="doctor check", daemon=True)
    thread.start()
    thread.join(seconds)
    if verdicts:
        return verdicts[0]
    return DoctorResult(_ERROR, f"no answer within {seconds:g} s")


def _verdict(check: Callable[[], DoctorResult]) -> DoctorResult:
    try:
        return call_sync(check)
    except Exception as error:  # noqa: BLE001 - a failing check is a finding, not the end
        return _build_failure(error)


def _build_failure(error: BaseException) -> DoctorResult:
    failure = describe_failure(error)
    return DoctorResult(_ERROR, failure.text, None, failure.data)
