"""A run that makes runs, parks and gathers is where a plain model in memory is, whatever is called."""

import random
from itertools import count

import anyio
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.durable import (
    DurableEngine,
    End,
    EndKind,
    NewRun,
    RunNotParkedError,
    RunPlan,
    Spawn,
    StepPlan,
)

PARTS = ("plans", "plan_steps", "groups", "runs", "history", "events")
TABLES = ", ".join(f"lexigram_durable_{part}" for part in PARTS)
KIDS = 2
FINAL = ("completed", "failed", "cancelled")
FACTS = ("status", "step_no", "retry", "lease", "wanted", "fan")
# of a run that is final they mean nothing: a retry counts anew
COUNTS = ("children", "children_failed")


def step(name):
    return StepPlan(name=name, step_type="x", handler="h", retries=2)


PARENT = RunPlan(workflow_id="w", steps=[step("split"), step("gather")])
CHILD = RunPlan(workflow_id="c", steps=[step("page")])


class Model:
    """One run of two steps; the first one makes two runs of one step, for the second to gather."""

    def __init__(self):
        self.runs = {1: self.fresh(1, None, "ready")}
        self.turns = count(1)
        self.endings = 0

    def fresh(self, run_id, parent, status):
        return {
            "id": run_id,
            "parent": parent,
            "status": status,
            "step_no": 1,
            "retry": 0,
            "turn": 0,
            "lease": None,
            "wanted": None,
            "fan": None,
            "children": 0,
            "children_failed": 0,
            "parked": False,
        }

    def tree(self, run_id):
        return list(self.runs.values()) if run_id == 1 else [self.runs[run_id]]

    def claim(self, lease):
        ready = [run for run in self.runs.values() if run["status"] == "ready"]
        if not ready:
            return None
        run = min(ready, key=lambda run: (run["turn"], run["id"]))
        run.update(status="running", lease=lease)
        return run["id"], run["step_no"]

    def left(self, run, status):
        wanted, run["lease"], run["wanted"] = run["wanted"], None, None
        if status in ("ready", "waiting", "parked") and wanted is not None:
            status = {"cancel": "cancelled", "pause": "paused"}[wanted]
        run["status"] = status
        if status in FINAL:
            self.final(run)

    def final(self, run):
        if run["parent"] is None:
            self.endings += 1
            return
        parent = self.runs[1]
        parent["children"] -= 1
        parent["children_failed"] += run["status"] != "completed"
        if parent["status"] == "waiting" and parent["children"] <= 0:
            parent["status"] = "ready"

    def finish(self, kind, run_id, step_no, lease):
        run = self.runs[run_id]
        if (run["lease"], run["step_no"]) != (lease, step_no):
            return False
        run["parked"] = kind == "park"
        if kind == "complete" and (run_id != 1 or step_no == 2):
            self.left(run, "completed")
        elif kind == "complete":
            run.update(step_no=2, retry=0, fan=1, children=KIDS, children_failed=0)
            self.left(run, "waiting")
            begin = {"waiting": "ready"}.get(run["status"], run["status"])
            for number in range(2, 2 + KIDS):
                self.runs[number] = self.fresh(number, 1, begin)
        elif kind == "error":
            run.update(retry=run["retry"] + 1, turn=next(self.turns))
            self.left(run, "failed" if run["retry"] >= 2 else "ready")
        else:
            self.left(run, "parked" if kind == "park" else "ready")
        return True

    def reap(self):
        taken = [run for run in self.runs.values() if run["status"] == "running"]
        for run in taken:
            self.left(run, "ready")
        return sorted(run["id"] * 10_000 + run["step_no"] for run in taken)

    def cancel(self, run_id):
        open_ = [run for run in self.tree(run_id) if run["status"] not in FINAL]
        todo = [run for run in open_ if run["wanted"] != "cancel"]
        for run in todo:
            if run["status"] == "running":
                run["wanted"] = "cancel"
            else:
                run["status"] = "cancelled"
        for run in todo:
            if run["status"] == "cancelled":
                self.final(run)
        return len(todo)

    def pause(self, run_id):
        todo = [
            run
            for run in self.tree(run_id)
            if run["status"] not in (*FINAL, "paused") and run["wanted"] is None
        ]
        for run in todo:
            if run["status"] == "running":
                run["wanted"] = "pause"
            else:
                run["status"] = "paused"
        return len(todo)

    def resume(self, run_id):
        todo = [r for r in self.tree(run_id) if r["status"] == "paused" or r["wanted"] == "pause"]
        for run in todo:
            run["wanted"] = None
            if run["status"] == "paused":
                waits = "waiting" if run["children"] > 0 else "ready"
                run["status"] = "parked" if run["parked"] and waits == "ready" else waits
        return len(todo)

    def retry(self, run_id, hard):
        todo = [
            run
            for run in self.tree(run_id)
            if run["status"] in ("failed", "cancelled") or (hard and run["status"] != "completed")
        ]
        for run in todo:
            run.update(status="ready", retry=0, lease=None, wanted=None, parked=False)
        parent = self.runs[1]
        if parent["fan"] and todo:
            kids = [run["status"] for run in self.runs.values() if run["parent"]]
            parent["children"] = sum(status not in FINAL for status in kids)
            parent["children_failed"] = sum(status in ("failed", "cancelled") for status in kids)
            if parent["status"] in ("ready", "waiting"):
                parent["status"] = "waiting" if parent["children"] else "ready"
        return len(todo)

    def answer(self, run_id):
        run = self.runs[run_id]
        if not run["parked"] or run["status"] in FINAL:
            return False
        run["parked"] = False
        if run["status"] == "parked":
            run["status"] = "ready"
        return True


run_ids = st.integers(1, 1 + KIDS)
operations = st.one_of(
    st.tuples(st.just("claim")),
    st.tuples(st.just("claim")),
    st.tuples(st.just("complete"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["complete", "error", "release", "park"]), st.integers(0, 9)),
    st.tuples(st.just("reap")),
    st.tuples(st.sampled_from(["cancel", "pause", "resume", "answer"]), run_ids),
    st.tuples(st.just("retry"), run_ids, st.booleans()),
)
ENDS = {
    "complete": EndKind.COMPLETED,
    "error": EndKind.ERROR,
    "release": EndKind.RELEASED,
    "park": EndKind.PARKED,
}


async def play(database, steps):
    engine, model = DurableEngine(database), Model()
    group = (await engine.submit(PARENT, [NewRun()])).group_id
    # every lease that ever was: those that are over are used too
    leases = []
    for number, (name, *arguments) in enumerate(steps):
        if name == "claim":
            found = await engine.claim_next_step("w", f"L{number}")
            claimed = found and (found.workflow_run_id, found.workflow_step_number)
            assert claimed == model.claim(f"L{number}")
            if claimed:
                leases.append((*claimed, f"L{number}"))
        elif name in ENDS:
            if leases:
                await finish(engine, model, name, leases[-1 - arguments[0] % len(leases)])
        elif name == "reap":
            await database.execute("UPDATE lexigram_durable_runs SET lease_until = 1")
            assert (await engine.store.reap(["other"])).steps == model.reap()
        elif arguments[0] not in model.runs:
            continue
        elif name == "answer":
            assert await answered(engine, arguments[0]) is model.answer(arguments[0])
        elif name == "retry":
            expected = model.retry(*arguments)
            assert await engine.retry(run_id=arguments[0], hard=arguments[1]) == expected
        else:
            expected = getattr(model, name)(arguments[0])
            assert await getattr(engine, name)(run_id=arguments[0]) == expected
        await same(engine, model, group)


async def finish(engine, model, name, claimed):
    run, step_no, lease = claimed
    end = End(run_id=run, step_no=step_no, lease=lease, kind=ENDS[name], message="m")
    if name == "complete" and (run, step_no) == (1, 1):
        end = evolve(end, spawns=[Spawn(plan=CHILD, runs=[NewRun() for _ in range(KIDS)])])
    [ended] = await engine.store.finish([end])
    assert (ended is not None) is model.finish(name, run, step_no, lease)


async def answered(engine, run_id):
    try:
        await engine.answer(run_id, 1)
    except RunNotParkedError:
        return False
    return True


async def same(engine, model, group_id):
    for run in model.runs.values():
        row = await engine.store.run(run["id"])
        names = FACTS if run["status"] in FINAL else (*FACTS, *COUNTS)
        assert {name: row[name] for name in names} == {name: run[name] for name in names}
    assert await engine.store.run(len(model.runs) + 1) is None
    group = await engine.store.group(group_id)
    assert (group["total"], group["endings"]) == (1, model.endings)
    assert (group["completed_at"] is None) is (model.runs[1]["status"] not in FINAL)
    assert await engine.store.reconcile() == 0


async def play_in_memory(steps):
    async with Database("sqlite:///:memory:") as database:
        await upgrade(database)
        await play(database, steps)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(operations, max_size=35))
def test_a_run_that_makes_runs_is_where_the_model_is(steps):
    anyio.run(play_in_memory, steps)


def anything(chance):
    """The same operations by chance, those that lead somewhere more often."""
    run = chance.randint(1, 1 + KIDS)
    return chance.choice(
        [
            *[("claim",)] * 6,
            *[("complete", chance.randrange(2))] * 4,
            (chance.choice(["error", "release", "park"]), chance.randrange(4)),
            (chance.choice(["error", "release", "park"]), chance.randrange(4)),
            ("reap",),
            *[(chance.choice(["cancel", "pause", "resume", "answer"]), run)] * 3,
            *[("retry", run, chance.random() < 0.3)] * 2,
        ]
    )


@pytest.mark.anyio
@pytest.mark.service("postgresql")
async def test_the_statements_of_postgresql_are_where_the_model_is(postgres):
    chance = random.Random(4711)
    for _ in range(4):
        await postgres.execute(f"TRUNCATE {TABLES} RESTART IDENTITY")
        await play(postgres, [anything(chance) for _ in range(60)])
