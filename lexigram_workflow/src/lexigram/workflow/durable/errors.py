"""What can go wrong with durable runs; one class per code."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from attrs import asdict

from lexigram.config import ConfigProblem
from lexigram.contracts.core.errors import LexigramError
from lexigram.contracts.data.sql.database import DatabaseError
from lexigram.sql.errors import is_transient


class DurableError(LexigramError):
    """The store of durable runs failed; ``cause`` says how."""

    code = "LEX_ERR_WF_130"


class PlanInvalidError(DurableError, ValueError):
    """A plan, a run or a setting cannot be run; the text lists everything that is wrong."""

    code = "LEX_ERR_WF_131"
    is_retryable = False


class RunNotFoundError(DurableError, LookupError):
    """No run or group has this number; retention may have removed it."""

    code = "LEX_ERR_WF_132"


class HandlerMissingError(DurableError, LookupError):
    """A worker does not have the handler of a step."""

    code = "LEX_ERR_WF_133"


class DefinitionInvalidError(DurableError, ValueError):
    """Definitions, parameters or overrides are wrong; ``problems`` has all, with their places."""

    code = "LEX_ERR_WF_140"
    is_retryable = False

    def __init__(self, problems: Iterable[ConfigProblem], what: str = "the definitions") -> None:
        self.problems = tuple(problems)
        self.what = what
        count = len(self.problems)
        title = f"{count} problem{'' if count == 1 else 's'} in {what}"
        super().__init__(
            "\n\n".join([title, *map(str, self.problems)]),
            details={"problems": [asdict(problem) for problem in self.problems]},
            hint="fix the places above; nothing was stored",
        )


class DefinitionNotFoundError(DurableError, LookupError):
    """No workflow or parameter set has this id."""

    code = "LEX_ERR_WF_141"

    def __init__(self, kind: str, wanted: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(wanted, names, n=3)
        meant = f" (did you mean {', '.join(map(repr, near))}?)" if near else ""
        super().__init__(
            f"there is no {kind} {wanted!r}{meant}",
            details={"id": wanted, "near": near, "known": names},
            hint=f"there are: {', '.join(names) or 'none'}",
        )


class DefinitionExistsError(DurableError, ValueError):
    """An upload has the id of an existing definition."""

    code = "LEX_ERR_WF_142"


class DefinitionProtectedError(DurableError, PermissionError):
    """A definition cannot be removed or replaced: it is built in, or runs use it."""

    code = "LEX_ERR_WF_143"


class DocumentNotFoundError(DurableError, LookupError):
    """No document, URI or batch like this is stored."""

    code = "LEX_ERR_WF_144"


class BatchCompletedError(DurableError, ValueError):
    """All runs of the batch are final: it takes no more documents."""

    code = "LEX_ERR_WF_145"


class DocumentInUseError(DurableError, ValueError):
    """A document cannot be removed while runs work on it."""

    code = "LEX_ERR_WF_146"


class DocumentSourceError(DurableError, ValueError):
    """The bytes of a document cannot be read from its URI."""

    code = "LEX_ERR_WF_147"


class GroupBusyError(DurableError):
    """A group cannot be removed while runs of it are not final."""

    code = "LEX_ERR_WF_160"


class ChildRunsFailedError(DurableError):
    """Runs that a step made failed or were cancelled: the step that gathers them cannot begin."""

    code = "LEX_ERR_WF_150"
    is_retryable = False


class RunNotParkedError(DurableError, LookupError):
    """The run waits for no answer: it is not parked, or was answered before."""

    code = "LEX_ERR_WF_151"


class QuestionUnclearError(DurableError, ValueError):
    """An answer came for a run that asked several questions; the text lists them."""

    code = "LEX_ERR_WF_152"


class BodyUnreadableError(DurableError, ValueError):
    """The body of a request does not match its Content-Type."""

    code = "LEX_ERR_WF_161"


class RunExistsError(DurableError, ValueError):
    """The document has a run of this workflow with these parameters already."""

    code = "LEX_ERR_WF_162"


class BodyTypeError(BodyUnreadableError):
    """The Content-Type of a request is neither JSON nor a form."""

    code = "LEX_ERR_WF_163"


class OrchestrationNotFoundError(DurableError, LookupError):
    """No pipeline, graph or saga is registered under this name in this process."""

    code = "LEX_ERR_WF_170"

    def __init__(self, wanted: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(wanted, names, n=3)
        meant = f" (did you mean {', '.join(map(repr, near))}?)" if near else ""
        super().__init__(
            f"no pipeline, graph or saga {wanted!r} is registered here{meant}",
            details={"name": wanted, "near": near, "known": names},
            hint=f"register it in every process that submits or works; here are: "
            f"{', '.join(names) or 'none'}",
        )


class OrchestrationChangedError(PlanInvalidError):
    """A run began with another version or shape of a pipeline, graph or saga than this one."""

    code = "LEX_ERR_WF_171"


class OrchestrationFailedError(PlanInvalidError):
    """A node or step failed in a way that no retry can fix; the message names it."""

    code = "LEX_ERR_WF_172"


class NotOrchestratedError(DurableError, LookupError):
    """The run is no pipeline, graph or saga: it has steps, and no state of its own."""

    code = "LEX_ERR_WF_173"


def is_outage(error: DurableError) -> bool:
    """True when the store did not refuse anything: it could not be reached, or was locked."""
    cause = error.__cause__
    return isinstance(cause, DatabaseError) and is_transient(cause)
