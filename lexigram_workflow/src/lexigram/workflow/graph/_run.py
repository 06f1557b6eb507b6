"""One run of a graph: what is ready runs, its changes are taken over, then what follows is ready.

The rules are in docs/explanation/graphs.md. A run that has one node at a time stays in the lane:
no task, no copy, no timer and no list per node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, TypeAlias, cast

from attrs import define

from lexigram import clock
from lexigram.concurrency import as_failure, call
from lexigram.workflow.config import GraphConfig
from lexigram.workflow.errors import (
    CycleDetectedError,
    GraphExecutionError,
    HumanInputRequiredError,
    NodeExecutionError,
    StateConflictError,
)
from lexigram.workflow.graph._plan import Plan
from lexigram.workflow.graph._position import Answer, Change, Contents, Pause, Position, Token
from lexigram.workflow.graph._reducers import MISSING, Reducer, empty_values, reduced
from lexigram.workflow.graph._watch import Watch
from lexigram.workflow.graph.edge import holds
from lexigram.workflow.graph.state import ITERATION, SharedState, changed, put
from lexigram.workflow.runs._recorder import Recorder
from lexigram.workflow.types import NodeResult

# Nodes that never wait would keep the event loop from everybody else.
_BREATHE = 63

Listener: TypeAlias = Callable[[NodeResult], object]


@define
class _Done:
    """A token whose node finished."""

    token: Token
    update: dict[str, Any]
    duration: float
    skipped: bool = False


class Run:
    """State and position of one run, and the loop that moves them."""

    def __init__(
        self,
        plan: Plan,
        config: GraphConfig,
        reducers: Mapping[str, Reducer],
        state: SharedState,
        position: Position,
        contents: Contents,
        recorder: Recorder,
        listener: Listener | None = None,
    ) -> None:
        self.plan = plan
        self.config = config
        self.state = state
        self.position = position
        self.results: list[NodeResult] = []
        self.contents = contents
        self.recorder = recorder
        self._reducers = reducers
        self._listener = listener
        self._watch: Watch | None = None
        self._failure: GraphExecutionError | None = None
        # lists and mappings that began empty, because nodes handed out nothing; not stored yet
        self._emptied: list[Change] = []
        # an answer for whichever node asks first
        self._known_answer: Any = MISSING

    def answer_first_pause(self, response: Any) -> None:
        """Give the first node that asks this answer instead of pausing."""
        self._known_answer = response

    async def walk(self, watch: Watch) -> None:
        """Run until nothing is left, or only what waits for a person.

        Raises GraphExecutionError; state and position are then those before the step.
        """
        self._watch = watch
        while self.position.waiting:
            ready = self._ready()
            if not ready:
                return
            if len(ready) == 1:
                await self._lane(ready[0])
            else:
                await self._side_by_side(ready)

    def move(self, position: Position) -> None:
        """Go on at another position."""
        self.position = self.contents.position = position

    # --- piece by piece, for callers that run each node elsewhere and store the run ---

    def ready(self) -> list[Token]:
        """What may run now, side by side; nothing: the run is over."""
        return self._ready()

    def count(self, tokens: Sequence[Token]) -> None:
        """They are about to run; CycleDetectedError when a loop took too many turns."""
        for token in tokens:
            if self.plan.in_cycle[token.at]:
                self._count_loop(token.at)

    async def run_one(self, token: Token) -> dict[str, Any]:
        """What a node changes; nothing is taken over. A pause passes, as does cancellation."""
        try:
            update = await self.plan.nodes[token.at].execute(self._view(token))
        except HumanInputRequiredError:
            raise
        except BaseException as error:  # the boundary to code of the user
            failure = as_failure(error)
            if failure is None:
                raise
            raise self._build_error(token.at, failure) from failure
        return update if update.__class__ is dict else self._as_dict(token.at, update)

    def take(self, done: Sequence[tuple[Token, dict[str, Any]]]) -> None:
        """Take over what nodes that ran side by side changed, in this order."""
        finished = [_Done(token, update, 0.0) for token, update in done]
        self._take_over(finished, [token for token, _ in done])

    # --- what may run ---

    def _ready(self) -> list[Token]:
        """Tokens that nothing else in the run can still lead to, in order."""
        waiting, paused = self.position.waiting, self.position.paused
        if len(waiting) == 1 and not paused:
            return waiting[:]
        ahead = again = 0
        for token in waiting:
            if token.back:
                again |= 1 << token.at
            else:
                ahead |= 1 << token.at
        for pause in paused:
            ahead |= 1 << pause.token.at
        ready = [token for token in waiting if not self._must_wait(token, ahead, again)]
        return ready if self.config.parallel_branches else ready[:1]

    def _must_wait(self, token: Token, ahead: int, again: int) -> bool:
        """A join waits for all that leads to it; a loop begins anew when all of it is quiet."""
        if not token.back:
            return bool(ahead & self.plan.before[token.at])
        loop = self.plan.loop[token.at]
        if ahead & loop:
            return True
        # Of two loops that wait for their next turn the inner one goes first.
        others = again & loop
        return any(
            others >> number & 1 and self.plan.before[number] >> token.at & 1
            for number in range(others.bit_length())
        )

    # --- one node after the other ---

    async def _lane(self, token: Token) -> None:
        """Run a node, and the next one as long as it is the only one."""
        plan, state, watch, position = self.plan, self.state, self._watch, self.position
        assert watch is not None
        nodes, names, only, in_cycle = plan.nodes, plan.names, plan.only, plan.in_cycle
        visited, parts, answers = plan.visited, position.parts, position.answers
        record = self.recorder.every_step
        while True:
            at = token.at
            if in_cycle[at]:
                self._count_loop(at)
            started = watch.lane_started = monotonic()
            watch.lane = names[at]
            skipped = token.visit in parts
            try:
                if skipped:
                    update = parts[token.visit]
                elif token.overlay is None and not answers and not visited[at]:
                    update = await nodes[at].execute(state)
                else:
                    update = await nodes[at].execute(self._view(token))
            except HumanInputRequiredError as pause:
                self._pause(token, pause)
                position.waiting.remove(token)
                self.contents.changes = []
                if record and position.waiting:
                    await self.recorder.step(())
                return
            except BaseException as error:  # the boundary to code of the user
                failure = as_failure(error)
                if failure is None:
                    raise
                raise self._build_error(at, failure) from failure
            finally:
                watch.lane = None
            if update.__class__ is not dict:
                update = self._as_dict(at, update)
            self._apply_one(at, update)
            duration = (monotonic() - started) * 1000
            result = NodeResult(names[at], update, duration, None, skipped)
            self.results.append(result)
            if self._listener is not None:
                self._listener(result)
            position.iterations += 1
            put(state, ITERATION, position.iterations)
            waiting = position.waiting
            following = only[at]
            if following is not None and len(waiting) == 1 and not position.paused:
                position.visits += 1
                waiting[0] = following_token = Token(following, position.visits)
            else:
                waiting.remove(token)
                self._follow(token)
                following_token = None
            if answers:
                answers.pop(token.visit, None)
            if record:
                self.contents.changes = [(names[at], token.visit, update), *self._emptied]
                self._emptied.clear()
                if waiting:
                    await self.recorder.step(self.contents.nodes)
            if skipped:
                del parts[token.visit]
            if not position.iterations & _BREATHE:
                await asyncio.sleep(0)
            if following_token is None:
                return
            token = following_token

    def _apply_one(self, at: int, update: dict[str, Any]) -> None:
        try:
            apply(self.state, update, self._reducers)
        except BaseException as error:  # a reducer is code of the user
            failure = as_failure(error)
            if failure is None:
                raise
            raise self._build_error(at, failure) from failure

    # --- several nodes at once ---

    async def _side_by_side(self, ready: list[Token]) -> None:
        """Run all of them on the same state, then take over their changes in order."""
        for token in ready:
            if self.plan.in_cycle[token.at]:
                self._count_loop(token.at)
        self._failure = None
        done: dict[int, _Done] = {}
        tokens = iter(ready)
        limit = self.config.max_parallel_branches or len(ready)
        tasks: list[asyncio.Task[None]] = []
        host = cast("asyncio.Task[Any]", asyncio.current_task())
        # asyncio's own group: 6 µs a task where anyio's took 32 µs, measured side by side.
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limit, len(ready))):
                work = self._branches(tokens, len(ready), done, tasks, host)
                tasks.append(group.create_task(work))
        if self._failure is not None:
            raise self._failure
        self._take_over([done[token.visit] for token in ready if token.visit in done], ready)
        if self.recorder.every_step and self.position.waiting:
            await self.recorder.step(self.contents.nodes)
        for token in ready:
            self.position.parts.pop(token.visit, None)

    async def _branches(
        self,
        tokens: Iterator[Token],
        count: int,
        done: dict[int, _Done],
        tasks: list[asyncio.Task[None]],
        host: asyncio.Task[Any],
    ) -> None:
        """Run tokens one after the other until none is left; a failure stops the others."""
        for token in tokens:
            try:
                await call(self._branch, token, count, done, host=host)
            except Exception as failure:  # noqa: BLE001 - raised below, free of the group
                if self._failure is None:
                    self._failure = self._build_error(token.at, failure)
                    me = asyncio.current_task()
                    for task in tasks:
                        if task is not me:
                            task.cancel()
                return

    async def _branch(self, token: Token, count: int, done: dict[int, _Done]) -> None:
        watch, at = self._watch, token.at
        assert watch is not None
        part = self.position.parts.get(token.visit)
        if part is not None:
            done[token.visit] = _Done(token, part, 0.0, skipped=True)
            return
        started = monotonic()
        watch.branches[token.visit] = (self.plan.names[at], started)
        try:
            update = await self.plan.nodes[at].execute(self._view(token))
        except HumanInputRequiredError as pause:
            self._pause(token, pause)
            return
        finally:
            del watch.branches[token.visit]
        if update.__class__ is not dict:
            update = self._as_dict(at, update)
        done[token.visit] = finished = _Done(token, update, (monotonic() - started) * 1000)
        if self._listener is not None:
            self._listener(self._result(finished))
        if self.recorder.every_step and len(done) < count:
            await self.recorder.share([finished], self._record_parts)
            self.position.parts[token.visit] = update

    async def _record_parts(self, done: Sequence[_Done]) -> None:
        """Store what some nodes changed while others of their step still run."""
        names = [self.plan.names[item.token.at] for item in done]
        parts = [[item.token.visit, item.update] for item in done]
        await self.recorder.add({"q": parts}, names)

    def _take_over(self, done: list[_Done], ready: list[Token]) -> None:
        """Changes in the order of the tokens, whatever finished first."""
        self._refuse_collisions(done)
        plan, position = self.plan, self.position
        names = plan.names
        for item in done:
            self._apply_one(item.token.at, item.update)
        self.results += [self._result(item) for item in done]
        self.contents.changes = [(names[d.token.at], d.token.visit, d.update) for d in done]
        position.iterations += len(done)
        put(self.state, ITERATION, position.iterations)
        position.waiting = [token for token in position.waiting if token not in ready]
        for item in done:
            position.answers.pop(item.token.visit, None)
            self._follow(item.token)
        self.contents.changes += self._emptied
        self._emptied.clear()

    def _refuse_collisions(self, done: list[_Done]) -> None:
        writers: dict[str, str] = {}
        for item in done:
            name = self.plan.names[item.token.at]
            for key, value in item.update.items():
                if key in self._reducers or self.state.get(key, MISSING) is value:
                    continue
                if key in writers:
                    raise StateConflictError(
                        key,
                        (writers[key], name),
                        state=self.shown(),
                        run_id=self.recorder.run.run_id,
                    )
                writers[key] = name

    # --- parts of both ---

    def _view(self, token: Token) -> SharedState:
        """The state as this node sees it: the very object, unless something is laid over it."""
        answer, needs_visit = (
            self.position.answers.get(token.visit),
            self.plan.visited[token.at],
        )
        if token.overlay is None and answer is None and not needs_visit:
            return self.state
        view = SharedState(self.state)
        if token.overlay is not None:
            changed(view, token.overlay, _branch=token.branch)
        if needs_visit:
            put(view, "_visit", token.visit)
        if answer is not None:
            changed(view, _pause=answer.remember)
            if answer.timed_out:
                changed(view, _timed_out=True)
            else:
                changed(view, _answer=answer.response, human_response=answer.response)
        return view

    def _pause(self, token: Token, pause: HumanInputRequiredError) -> None:
        if self._known_answer is not MISSING:
            answer, self._known_answer = self._known_answer, MISSING
            self.position.answers[token.visit] = Answer(answer, pause.remember)
            self.position.waiting.append(Token(token.at, token.visit, token.back))
            return
        due = pause.due(clock.timestamp())
        self.position.answers.pop(token.visit, None)
        self.position.paused.append(Pause(token, pause.prompt, pause.remember, due))

    def _follow(self, token: Token) -> None:
        """Make tokens for where the edges out of a finished node lead."""
        self._leave(token.at, frozenset())

    def _leave(self, at: int, passed: frozenset[int]) -> None:
        """``passed``: nodes on the way here that had nothing to run for."""
        state, plan = self.state, self.plan
        if at in plan.terminals and self._ends(at):
            self.position.terminated_at = plan.names[at]
            return
        for way in plan.ways[at]:
            try:
                if way.plain:
                    self._add(way.target, back=way.back)
                elif way.edge.is_active(state):
                    if way.each is None:
                        self._add(way.target, back=way.back)
                    elif not self._spread(way.target, way.each(state), back=way.back):
                        self._pass(at, way.target, passed)
            except BaseException as error:  # conditions and fan-outs are code of the user
                failure = as_failure(error)
                if failure is None:
                    raise
                place = f"the edge to {plan.names[way.target]!r}"
                raise self._build_error(at, failure, place) from failure

    def _ends(self, at: int) -> bool:
        """Whether the condition of a terminal node holds."""
        try:
            return holds(self.plan.terminals[at], self.state)
        except BaseException as error:  # it is code of the user
            failure = as_failure(error)
            if failure is None:
                raise
            raise self._build_error(at, failure, "its terminal condition") from failure

    def _add(self, target: int, *, back: bool) -> None:
        for token in self.position.waiting:
            if token.at == target and token.overlay is None:
                token.back = token.back and back
                return
        self.position.waiting.append(Token(target, self.position.new_visit(), back))

    def _spread(self, target: int, pieces: Any, *, back: bool) -> int:
        """How many pieces there are."""
        count = 0
        for branch, piece in enumerate(pieces):
            visit = self.position.new_visit()
            self.position.waiting.append(Token(target, visit, back, dict(piece), branch))
            count += 1
        return count

    def _pass(self, at: int, target: int, passed: frozenset[int]) -> None:
        """Without a piece for the target the run goes on behind it: what gathers finds nothing."""
        if target in passed:
            return
        writes = getattr(self.plan.nodes[target], "writes", None)
        if empty := empty_values(self._reducers, self.state, writes):
            changed(self.state, empty)
            change = (self.plan.names[at], self.position.new_visit(), empty)
            self._emptied.append(change)
        self._leave(target, passed | {target})

    def _count_loop(self, at: int) -> None:
        self.position.loop_runs += 1
        if self.position.loop_runs > self.config.max_iterations:
            raise CycleDetectedError(
                self.config.max_iterations,
                node=self.plan.names[at],
                state=self.shown(),
                run_id=self.recorder.run.run_id,
            )

    def _result(self, done: _Done) -> NodeResult:
        name = self.plan.names[done.token.at]
        return NodeResult(name, done.update, done.duration, None, done.skipped)

    def _as_dict(self, at: int, update: Any) -> dict[str, Any]:
        if isinstance(update, Mapping):
            return dict(cast("Mapping[str, Any]", update))
        if update is None:
            return {}
        error = TypeError(f"a node returns a mapping of what changes, not {type(update).__name__}")
        raise self._build_error(at, error)

    def _build_error(self, at: int, error: Exception, what: str = "") -> GraphExecutionError:
        if isinstance(error, GraphExecutionError) and error.run_id == self.recorder.run.run_id:
            return error
        name = self.plan.names[at]
        place = f", at {what}" if what else ""
        return NodeExecutionError(
            f"Node {name!r} failed{place}: {str(error) or type(error).__name__}",
            node=name,
            state=self.shown(),
            run_id=self.recorder.run.run_id,
            cause=error,
        )

    def shown(self) -> dict[str, Any]:
        """The state for people and errors."""
        return dict(self.state)


def apply(
    state: dict[str, Any], update: Mapping[str, Any], reducers: Mapping[str, Reducer]
) -> None:
    """Take over what a node changed.

    A list or dict that is the very object in the state is no write, so that a node may return
    ``{**state, ...}`` without adding everything to itself.
    """
    if not reducers:
        for key in update:
            if key[:1] == "_":
                update = {k: v for k, v in update.items() if k[:1] != "_"}
                break
        changed(state, update)
        return
    new: dict[str, Any] = {}
    for key, value in update.items():
        reducer = reducers.get(key)
        if key[:1] == "_":
            continue
        if reducer is None:
            new[key] = value
            continue
        before = state.get(key, MISSING)
        if before is not value or not isinstance(value, list | dict | set):
            new[key] = reduced(reducer, before, value)
    changed(state, new)  # after the last reducer: one that fails changes nothing
