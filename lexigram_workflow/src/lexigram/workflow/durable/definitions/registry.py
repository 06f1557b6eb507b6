"""Registry of workflows and parameter sets: from folders, packages, uploads and code."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

import anyio
from anyio import to_thread
from attrs import field, frozen

from lexigram import clock
from lexigram.config import ConfigProblem
from lexigram.contracts.core.errors import LexigramError
from lexigram.observability import get_logger
from lexigram.workflow.durable.definitions._yaml import (
    Document,
    check_set,
    read_params,
    read_workflow,
)
from lexigram.workflow.durable.definitions.catalog import HandlerCatalog
from lexigram.workflow.durable.definitions.model import (
    Overrides,
    ParameterSet,
    Source,
    WorkflowDefinition,
    make_plan,
)
from lexigram.workflow.durable.errors import (
    DefinitionExistsError,
    DefinitionInvalidError,
    DefinitionNotFoundError,
    DefinitionProtectedError,
    DurableError,
)
from lexigram.workflow.durable.plan import RunPlan

logger = get_logger(__name__)

D = TypeVar("D", WorkflowDefinition, ParameterSet)

GROUP: Final = "lexigram.workflow.definitions"
_WORKFLOW = re.compile(r"^item_steps\s*:", re.MULTILINE)
_LOOK_SECONDS = 1.0  # folders are checked for changes on access, at most this often

# Whether a stored group uses the parameter set.
IsUsed: TypeAlias = Callable[[str], Awaitable[bool]]
# Raises a LexigramError when the handler requires a service that the container lacks.
Check: TypeAlias = Callable[[str, Callable[..., Any]], object]
# (path, time of change, size) of every file
Stamp: TypeAlias = frozenset[tuple[str, int, int]]


@frozen(kw_only=True)
class DefinitionFolders:
    """Where definitions are read from; a folder that is not there is empty."""

    workflow_dir: Path | None = None
    param_dir: Path | None = None
    # uploads: parameter sets, and workflows in its folder ``workflows``
    user_param_dir: Path | None = None

    @property
    def user_workflow_dir(self) -> Path | None:
        """Where uploaded workflows are."""
        return None if self.user_param_dir is None else self.user_param_dir / "workflows"


@frozen(kw_only=True)
class _State:
    """The definitions of one read."""

    workflows: Mapping[str, WorkflowDefinition] = field(factory=dict[str, WorkflowDefinition])
    params: Mapping[str, ParameterSet] = field(factory=dict[str, ParameterSet])
    problems: Sequence[ConfigProblem] = ()
    absent: Sequence[ConfigProblem] = ()
    stamp: Stamp = frozenset()


class DefinitionRegistry:
    """Workflows and parameter sets by id.

    Changed folders are read again. Problems of such a read are logged and listed in ``problems``,
    and the previous definitions stay in use: runs store their plans anyway. The first read raises
    instead, so that an application does not start with half of its definitions.
    """

    def __init__(
        self,
        handlers: HandlerCatalog,
        folders: DefinitionFolders | None = None,
        *,
        default_workflow_id: str = "batch_split",
        default_param_id: str = "default",
        lancedb_dir: str = "lancedb",
        packages: Sequence[str] | None = None,
        is_used: IsUsed | None = None,
        check: Check | None = None,
    ) -> None:
        self.handlers = handlers
        self.folders = folders or DefinitionFolders()
        self.default_workflow_id = default_workflow_id
        self.default_param_id = default_param_id
        self._lancedb_dir = lancedb_dir
        # None: those that installed packages offer
        self._packages = packages
        self._is_used = is_used
        self._check = check
        self._workflows: dict[str, WorkflowDefinition] = {}
        self._params: dict[str, ParameterSet] = {}
        self._state: _State | None = None
        self._looked = 0.0
        self._lock = anyio.Lock()
        self.problems: Sequence[ConfigProblem] = ()
        # handlers that this process does not have: their steps wait for a worker that has them
        self.absent: Sequence[ConfigProblem] = ()

    # --- in code --------------------------------------------------------------------------------

    def register(self, definition: WorkflowDefinition | ParameterSet) -> None:
        """Add one that is made in code; an id that is registered already is refused."""
        if isinstance(definition, WorkflowDefinition):
            _refuse_twice("workflow", definition.id, self._workflows)
            self._workflows[definition.id] = definition
        else:
            _refuse_twice("parameter set", definition.id, self._params)
            self._params[definition.id] = definition
        self._state = None

    # --- queries --------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything now; raises DefinitionInvalidError with every problem of every file.

        Services that handlers require and the container lacks are problems too, except for
        definitions of packages. A handler that this process does not have is in ``absent``:
        another worker may have it.
        """
        state = await self._current(force=True)
        problems = [*self.problems]
        for definition in state.workflows.values():
            if definition.source != "package":  # an application need not use those
                problems += await to_thread.run_sync(self._find_unwired, definition)
        if problems:
            raise DefinitionInvalidError(problems)

    async def list(self) -> Sequence[WorkflowDefinition]:
        """All workflows, by id."""
        return [one for _, one in sorted((await self._current()).workflows.items())]

    async def get(self, workflow_id: str | None = None) -> WorkflowDefinition:
        """The workflow, or the default one; raises DefinitionNotFoundError with near ids."""
        wanted = workflow_id or self.default_workflow_id
        return await self._get("workflow", wanted, lambda state: state.workflows)

    async def list_params(self) -> Sequence[ParameterSet]:
        """All parameter sets, by id."""
        return [one for _, one in sorted((await self._current()).params.items())]

    async def params(self, param_id: str | None = None) -> ParameterSet:
        """The parameter set, or the default one; raises DefinitionNotFoundError with near ids."""
        wanted = param_id or self.default_param_id
        return await self._get("parameter set", wanted, lambda state: state.params)

    async def plan(
        self,
        workflow_id: str | None = None,
        param_id: str | None = None,
        overrides: Overrides | None = None,
    ) -> RunPlan:
        """The plan of a run of the workflow with these parameters.

        Without ``param_id`` and without a default set the steps' own parameters are used. The
        default set of an installed package is for its own workflows only. Raises
        DefinitionNotFoundError, and DefinitionInvalidError with all problems.
        """
        definition = await self.get(workflow_id)
        params: ParameterSet | None
        if param_id is not None:
            params = await self.params(param_id)
        else:
            params = (await self._current()).params.get(self.default_param_id)
            if params is not None and not _is_meant_for(params, definition):
                params = None
        return await to_thread.run_sync(
            lambda: make_plan(
                definition, params, overrides, self.handlers, lancedb_dir=self._lancedb_dir
            )
        )

    # --- uploads --------------------------------------------------------------------------------

    async def validate(self, text: str, name: str, *, is_upload: bool = False) -> None:
        """Raise DefinitionInvalidError with all problems of a file or an upload.

        It is a workflow when it has ``item_steps``, else a parameter set. Problems of other
        files are not reported.
        """
        state = await to_thread.run_sync(self._read, self._state)
        read = self._read_workflow if _WORKFLOW.search(text) else self._read_params
        found = await to_thread.run_sync(read, text, name, state, "user" if is_upload else "app")
        if isinstance(found, WorkflowDefinition):
            problems = await to_thread.run_sync(self._find_unwired, found)
            if problems:
                raise DefinitionInvalidError(problems, "the workflow")

    async def upload_workflow(self, text: str) -> WorkflowDefinition:
        """Store the YAML of a workflow whose handlers are registered or allowed.

        Raises DefinitionInvalidError and DefinitionExistsError, and then nothing is changed.
        """
        async with self._lock:
            state = await self._refresh(force=True)
            found = await to_thread.run_sync(self._read_workflow, text, "upload", state, "user")
            _refuse_twice("workflow", found.id, state.workflows)
            await self._save(self.folders.user_workflow_dir, found.id, text)
            return (await self._refresh(force=True)).workflows[found.id]

    async def upload_params(self, text: str) -> ParameterSet:
        """Store the YAML of a parameter set; errors as for a workflow."""
        async with self._lock:
            state = await self._refresh(force=True)
            found = await to_thread.run_sync(self._read_params, text, "upload", state, "user")
            _refuse_twice("parameter set", found.id, state.params)
            await self._save(self.folders.user_param_dir, found.id, text)
            return (await self._refresh(force=True)).params[found.id]

    async def delete_params(self, param_id: str) -> None:
        """Remove an uploaded set. Raises DefinitionProtectedError for others and for one in use."""
        found = await self.params(param_id)
        if found.source != "user":
            raise DefinitionProtectedError(
                f"the parameter set {param_id!r} is not an upload",
                details={"id": param_id, "origin": found.origin},
                hint=f"it is in {found.origin}: change it there",
            )
        if self._is_used is not None and await self._is_used(param_id):
            raise DefinitionProtectedError(
                f"the parameter set {param_id!r} is used by a run group",
                details={"id": param_id},
                hint="it can go when retention or you removed these groups",
            )
        async with self._lock:
            await anyio.Path(found.origin).unlink(missing_ok=True)
            await self._refresh(force=True)

    def _find_unwired(self, definition: WorkflowDefinition) -> Sequence[ConfigProblem]:
        """Services that handlers require and the container lacks, by the place of their step."""
        if self._check is None:
            return []
        problems: list[ConfigProblem] = []
        events = definition.lifecycle.items()
        methods = [(f"item_steps.{one.key}", one.method, one.place) for one in definition.steps]
        methods += [
            (f"lifecycle_events.{event}[{number}]", one.method, one.place)
            for event, handlers in events
            for number, one in enumerate(handlers)
        ]
        for key, method, place in methods:
            function = self.handlers.get(method)
            if function is None:
                continue
            try:
                self._check(method, function)
            except LexigramError as error:
                text = str(error).replace("\n", "\n    ")
                problems.append(ConfigProblem(source=place, key=f"{key}.method", message=text))
        return problems

    def _read_workflow(self, text: str, name: str, _: _State, source: Source) -> WorkflowDefinition:
        found, problems = read_workflow(
            Document(text=text, name=name, source=source), self.handlers
        )
        if found is None:
            raise DefinitionInvalidError(problems, "the workflow")
        return found

    def _read_params(self, text: str, name: str, state: _State, source: Source) -> ParameterSet:
        found, problems = read_params(Document(text=text, name=name, source=source))
        if found is not None:
            problems = list(check_set(found, list(state.workflows.values()), self.handlers))
        if found is None or problems:
            raise DefinitionInvalidError(problems, "the parameter set")
        return found

    async def _save(self, folder: Path | None, name: str, text: str) -> None:
        if folder is None:
            raise DefinitionProtectedError(
                "there is no folder for uploads", hint="set workflow.durable.user_param_dir"
            )
        try:
            await to_thread.run_sync(_write, folder, f"user_{name}.yaml", text)
        except OSError as error:
            raise DurableError(
                f"the upload cannot be written to {folder}: {error.strerror or error}",
                hint="workflow.durable.user_param_dir must be a folder that can be written",
            ) from error

    # --- reading --------------------------------------------------------------------------------

    async def _get(self, what: str, wanted: str, among: Callable[[_State], Mapping[str, D]]) -> D:
        found = among(await self._current()).get(wanted)
        if found is None:  # it may have been written a moment ago
            known = among(await self._current(force=True))
            if wanted not in known:
                raise DefinitionNotFoundError(what, wanted, known)
            found = known[wanted]
        return found

    async def _current(self, *, force: bool = False) -> _State:
        state = self._state
        if state is not None and not force and clock.monotonic() - self._looked < _LOOK_SECONDS:
            return state
        async with self._lock:
            return await self._refresh(force=force)

    async def _refresh(self, *, force: bool) -> _State:
        """Under the lock: the definitions of the folders now, or the last valid ones."""
        old = self._state
        if old is not None and not force and clock.monotonic() - self._looked < _LOOK_SECONDS:
            return old
        new = await to_thread.run_sync(self._read, old)
        self._looked = clock.monotonic()
        if new.problems and old is None:
            raise DefinitionInvalidError(new.problems)
        if new.problems and new.problems != self.problems:
            logger.error(
                "changed definitions are invalid; the previous ones stay in use",
                problems=[str(problem) for problem in new.problems],
            )
        self.problems = new.problems
        if old is not None and new.problems:
            return old
        self.absent = new.absent
        self._state = new
        return new

    def _read(self, old: _State | None) -> _State:
        """In a thread: the files and their problems."""
        packages, missing = self._find_packages()
        problems = [*missing]
        files = list(self._files(packages))
        stamp = frozenset(_stamp(path) for path, _, _ in files)
        if old is not None and stamp == old.stamp and not problems:
            return old
        absent: list[ConfigProblem] = []
        workflows: dict[str, WorkflowDefinition] = dict(self._workflows)
        params: dict[str, ParameterSet] = dict(self._params)
        for path, source, is_workflow in files:
            document = _document(path, source)
            if isinstance(document, ConfigProblem):
                problems.append(document)
            elif is_workflow:
                workflow, found = read_workflow(document, self.handlers, absent)
                problems += [*found, *_add(workflow, workflows, "workflow")]
            else:
                one, found = read_params(document)
                problems += [*found, *_add(one, params, "parameter set")]
        for one in params.values():
            problems += check_set(one, list(workflows.values()), self.handlers)
        return _State(
            workflows=workflows, params=params, problems=problems, absent=absent, stamp=stamp
        )

    def _files(self, packages: Iterable[Path]) -> Iterable[tuple[Path, Source, bool]]:
        folders = self.folders
        places: list[tuple[Path | None, Source, bool]] = []
        for package in packages:
            places.append((package / "workflows", "package", True))
            places.append((package / "params", "package", False))
        places.append((folders.workflow_dir, "app", True))
        places.append((folders.param_dir, "app", False))
        places.append((folders.user_workflow_dir, "user", True))
        places.append((folders.user_param_dir, "user", False))
        for folder, source, is_workflow in places:
            for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
                if path.suffix in (".yaml", ".yml") and not path.name.startswith("."):
                    yield path, source, is_workflow

    def _find_packages(self) -> tuple[Sequence[Path], Sequence[ConfigProblem]]:
        """The folders of packages, and a problem for each missing package."""
        names = self._packages
        if names is None:
            names = [point.value for point in sorted(entry_points(group=GROUP))]
        folders: list[Path] = []
        problems: list[ConfigProblem] = []
        for name in names:
            try:
                spec = find_spec(name)
            except ImportError:
                spec = None
            places = (spec.submodule_search_locations if spec else None) or ()
            folders += map(Path, places)
            if not places:
                text = f"no such package, though an installed one offers it in {GROUP}"
                problems.append(ConfigProblem(source=name, message=text))
        return folders, problems


def _is_meant_for(params: ParameterSet, definition: WorkflowDefinition) -> bool:
    """Whether a default set may be applied: a package cannot know the steps of other packages."""
    if params.source != "package":
        return True
    return Path(params.origin).parent.parent == Path(definition.origin).parent.parent


def _refuse_twice(kind: str, wanted: str, known: Mapping[str, object]) -> None:
    if wanted in known:
        origin = getattr(known[wanted], "origin", "code")
        raise DefinitionExistsError(
            f"there is a {kind} {wanted!r} already, in {origin}",
            details={"id": wanted, "origin": origin},
            hint="choose another id, or delete the old one first",
        )


def _add(one: D | None, known: dict[str, D], kind: str) -> Iterable[ConfigProblem]:
    """Add a definition to the known ones; a duplicate id is a problem.

    Definitions in the folders of an operator replace those of packages.
    """
    if one is None:
        return
    other = known.get(one.id)
    if other is not None and (other.source != "package" or one.source == "package"):
        yield ConfigProblem(
            source=f"{one.origin}:1:1",
            key="id",
            value=repr(one.id),
            message=f"duplicate {kind} id: {other.origin} has it too; give one of them another",
        )
        return
    known[one.id] = one


def _document(path: Path, source: Source) -> Document | ConfigProblem:
    try:
        return Document(text=path.read_text(encoding="utf-8"), name=str(path), source=source)
    except OSError as error:
        return ConfigProblem(source=str(path), message=f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        return ConfigProblem(source=str(path), message=f"is not UTF-8 text (byte {error.start})")


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return str(path), 0, 0  # removed meanwhile: reading it reports the error
    return str(path), found.st_mtime_ns, found.st_size


def _write(folder: Path, name: str, text: str) -> None:
    """Whole or not at all: other processes read the folder at any time."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{uuid4().hex}"
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)
