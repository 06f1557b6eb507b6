"""Whatever is called in whatever order, the engine is where a plain model in memory is."""

from itertools import count

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lexigram.sql import Database
from lexigram.sql.migrate import upgrade
from lexigram.workflow.durable import DurableEngine, NewRun, RunPlan, StepPlan

RUNS, STEPS, RETRIES = 3, 2, 2
FINAL = ("completed", "failed", "cancelled")


class Model:
    """Three runs of two steps, two attempts each, written down as one would explain it."""

    def __init__(self):
        self.runs = [
            {"id": n, "status": "ready", "step": 1, "retry": 0, "turn": 0, "lease": None}
            | {"wanted": None}
            for n in range(1, RUNS + 1)
        ]
        self.turns = count(1)
        self.endings = 0

    def end_group(self, before):
        if before and all(run["status"] in FINAL for run in self.runs):
            self.endings += 1

    @property
    def is_open(self):
        return any(run["status"] not in FINAL for run in self.runs)

    def claim(self, lease):
        ready = [run for run in self.runs if run["status"] == "ready"]
        if not ready:
            return None
        run = min(ready, key=lambda run: (run["turn"], run["id"]))
        run.update(status="running", lease=lease)
        return run["id"], run["step"]

    def left(self, run, status):
        wanted, run["lease"], run["wanted"] = run["wanted"], None, None
        if status == "ready" and wanted is not None:
            status = {"cancel": "cancelled", "pause": "paused"}[wanted]
        run["status"] = status

    def finish(self, kind, run_id, step, lease):
        run = self.runs[run_id - 1]
        if (run["lease"], run["step"]) != (lease, step):
            return False
        was_open = self.is_open
        if kind == "complete":
            if step == STEPS:
                self.left(run, "completed")
            else:
                run.update(step=step + 1, retry=0)
                self.left(run, "ready")
        elif kind == "error":
            run.update(retry=run["retry"] + 1, turn=next(self.turns))
            self.left(run, "failed" if run["retry"] >= RETRIES else "ready")
        else:
            self.left(run, "ready")
        self.end_group(was_open)
        return True

    def reap(self):
        was_open = self.is_open
        taken = [run for run in self.runs if run["status"] == "running"]
        for run in taken:
            self.left(run, "ready")
        self.end_group(was_open)
        return [run["id"] * 10_000 + run["step"] for run in taken]

    def cancel(self, run_id):
        run, was_open = self.runs[run_id - 1], self.is_open
        if run["status"] in FINAL or run["wanted"] == "cancel":
            return 0
        if run["status"] == "running":
            run["wanted"] = "cancel"
        else:
            run["status"] = "cancelled"
        self.end_group(was_open)
        return 1

    def pause(self, run_id):
        run = self.runs[run_id - 1]
        if run["status"] in (*FINAL, "paused") or run["wanted"] is not None:
            return 0
        if run["status"] == "running":
            run["wanted"] = "pause"
        else:
            run["status"] = "paused"
        return 1

    def resume(self, run_id):
        run = self.runs[run_id - 1]
        if run["status"] == "paused":
            run["status"] = "ready"
        elif run["wanted"] == "pause":
            run["wanted"] = None
        else:
            return 0
        return 1

    def retry(self, run_id, hard):
        run = self.runs[run_id - 1]
        if run["status"] == "completed" or not (hard or run["status"] in FINAL):
            return 0
        run.update(status="ready", retry=0, lease=None, wanted=None)
        return 1


run_ids = st.integers(1, RUNS)
operations = st.one_of(
    st.tuples(st.just("claim")),
    st.tuples(st.sampled_from(["complete", "error", "release"]), st.integers(0, 9)),
    st.tuples(st.just("reap")),
    st.tuples(st.sampled_from(["cancel", "pause", "resume"]), run_ids),
    st.tuples(st.just("retry"), run_ids, st.booleans()),
)


async def play(steps):
    async with Database("sqlite:///:memory:") as database:
        await upgrade(database)
        engine, model = DurableEngine(database), Model()
        plan = RunPlan(
            workflow_id="w",
            steps=[
                StepPlan(name=str(n), step_type="x", handler="h", retries=RETRIES)
                for n in range(STEPS)
            ],
        )
        group = (await engine.submit(plan, [NewRun() for _ in range(RUNS)])).group_id
        # every lease that ever was: those that are over are used too
        leases = []
        for number, (name, *arguments) in enumerate(steps):
            if name == "claim":
                step = await engine.claim_next_step("w", f"L{number}")
                found = step and (step.workflow_run_id, step.workflow_step_number)
                assert found == model.claim(f"L{number}")
                if found:
                    leases.append((*found, f"L{number}"))
            elif name in ("complete", "error", "release"):
                if leases:
                    run, step_no, lease = leases[-1 - arguments[0] % len(leases)]
                    call = getattr(engine, f"{name}_step")
                    texts = ("boom",) if name == "error" else ()
                    answer = await call(run * 10_000 + step_no, lease, *texts)
                    assert bool(answer) is model.finish(name, run, step_no, lease)
            elif name == "reap":
                await database.execute("UPDATE lexigram_durable_runs SET lease_until = 1")
                assert (await engine.store.reap(["other"])).steps == model.reap()
            elif name == "retry":
                run, hard = arguments
                expected = model.retry(run, hard)
                assert await engine.retry(run_id=run, hard=hard) == expected
            else:
                expected = getattr(model, name)(arguments[0])
                assert await getattr(engine, name)(run_id=arguments[0]) == expected
            await same(engine, model, group)


async def same(engine, model, group_id):
    for run in model.runs:
        row = await engine.store.run(run["id"])
        seen = (row["status"], row["step_no"], row["retry"], row["lease"], row["wanted"])
        known = (run["status"], run["step"], run["retry"], run["lease"], run["wanted"])
        assert seen == known
    group = await engine.store.group(group_id)
    statuses = [run["status"] for run in model.runs]
    assert group["remaining"] == sum(status not in FINAL for status in statuses)
    assert group["failed"] == statuses.count("failed")
    assert group["cancelled"] == statuses.count("cancelled")
    assert group["endings"] == model.endings
    assert (group["completed_at"] is None) is model.is_open
    assert await engine.store.reconcile() == 0


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(operations, max_size=30))
def test_the_engine_is_where_the_model_is(steps):
    anyio.run(play, steps)
