"""Writes workflows that run as they are: a graph, a pipeline, a saga."""

from __future__ import annotations

import keyword
import re

from lexigram.cli.errors import CliError

_GRAPH = '''"""The workflow {name}: replace what its nodes do."""

from typing import Any

from lexigram.workflow import WorkflowBuilder, workflow


def prepare(state: dict[str, Any]) -> dict[str, Any]:
    """Read the input."""
    return {{"subject": str(state["input"]).strip()}}


def finish(state: dict[str, Any]) -> str:
    """What it returns is the output."""
    return f"{name}: {{state['subject']}}"


@workflow("{name}")
def {function}() -> WorkflowBuilder:
    """The workflow {name}."""
    return (
        WorkflowBuilder("{name}")
        .add_node("prepare", prepare)
        .add_node("finish", finish)
        .add_edge("prepare", "finish")
        .set_entry("prepare")
        .set_terminal("finish")
    )
'''

_STEP = '''
async def {function}(context: PipelineContext) -> str:
    """The step {name}."""
    return "{name} of " + str(context.get_metadata("input", "nothing"))

'''

_PIPELINE = '''"""The pipeline {name}: replace what its steps do."""

from lexigram.workflow import Pipeline, PipelineContext, workflow
from lexigram.workflow.pipeline import FunctionStep

{steps}
@workflow("{name}")
def {function}() -> Pipeline:
    """The pipeline {name}."""
    return Pipeline(
        "{name}",
        [
{listed}
        ],
    )
'''

_ACTION = '''
    @saga_step(compensation="undo_{function}")
    async def {function}(self) -> Result[str, Exception]:
        """Do {name}. May be called again after a crash."""
        return Ok("{name} of " + self._saga_id)

    async def undo_{function}(self) -> None:
        """Undo {name}; fine when it did not happen."""
'''

_SAGA = '''"""The saga {name}: replace what its steps do."""

from lexigram.contracts.workflow import SagaStoreProtocol
from lexigram.result import Ok, Result
from lexigram.workflow import saga_step, workflow
from lexigram.workflow.saga import AbstractSaga


@workflow("{name}")
class {cls}(AbstractSaga[object]):
    """The saga {name}."""

    def __init__(self, saga_id: str, store: SagaStoreProtocol) -> None:
        super().__init__(store)
        self._saga_id = saga_id

    def get_id(self) -> str:
        return "{name}:" + self._saga_id
{steps}'''


class WorkflowGenerator:
    """A graph."""

    def generate(self, name: str) -> dict[str, str]:
        """One file."""
        function = _identifier(name)
        return {f"{function}.py": _GRAPH.format(name=name, function=_free(function))}


class PipelineGenerator:
    """A pipeline with the named steps."""

    def generate(self, name: str, steps: str = "validate,work") -> dict[str, str]:
        """One file."""
        function = _identifier(name)
        names = _names(steps)
        functions = {each: _free(_identifier(each), function) for each in names}
        text = _PIPELINE.format(
            name=name,
            function=_free(function),
            steps="\n".join(_STEP.format(name=n, function=f) for n, f in functions.items()),
            listed="\n".join(
                f'            FunctionStep("{n}", {f}),' for n, f in functions.items()
            ),
        )
        return {f"{function}.py": text}


class SagaGenerator:
    """A saga with the named steps and their compensations."""

    def generate(self, name: str, steps: str = "reserve,charge") -> dict[str, str]:
        """One file."""
        function = _identifier(name)
        text = _SAGA.format(
            name=name,
            cls="".join(part.capitalize() for part in function.split("_")) + "Saga",
            steps="".join(_ACTION.format(name=n, function=_identifier(n)) for n in _names(steps)),
        )
        return {f"{function}.py": text}


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(names) != len({_identifier(name) for name in names}):
        raise CliError(f"--steps {text!r} needs different names", hint="--steps validate,work")
    return names


def _identifier(name: str) -> str:
    made = re.sub(r"\W+", "_", name).strip("_").lower()
    if not made.isidentifier() or keyword.iskeyword(made) or '"' in name or "\\" in name:
        raise CliError(f"{name!r} cannot be a name", hint="use a-z, A-Z, 0-9, - and _")
    return made


def _free(function: str, *taken: str) -> str:
    """A name that hides nothing the file imports."""
    return f"{function}_step" if function in {*taken, "workflow", "prepare", "finish"} else function
