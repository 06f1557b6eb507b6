"""An application is told to stop at any moment: what booted is shut down, and it exits with 0."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from tests.processes import Popen

ROUNDS = int(os.environ.get("LEX_CHAOS_ROUNDS", "5"))
SEED = int(os.environ.get("LEX_CHAOS_SEED", "0")) or random.randrange(1, 2**31)
HANG_GUARD_SECONDS = 60

PROGRAM = textwrap.dedent(
    """
    import sys
    import anyio
    from lexigram.app import Application
    from lexigram.di import Provider


    def part(number):
        class Part(Provider):
            name = f"part{number}"
            dependencies = (f"part{number - 1}",) if number else ()

            async def boot(self, container):
                await anyio.sleep(0.005)
                print(f"+{number}", flush=True)

            async def shutdown(self):
                await anyio.sleep(0.005)
                print(f"-{number}", flush=True)

        return Part()


    Application("chaos", providers=[part(number) for number in range(4)]).run()
    """
)


@pytest.mark.chaos
@pytest.mark.timeout(ROUNDS * HANG_GUARD_SECONDS)
def test_a_signal_at_any_moment_after_the_start_drains_and_exits_0(tmp_path):
    chance = random.Random(SEED)
    print(f"seed {SEED}, {ROUNDS} rounds")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for round_number in range(ROUNDS):
        delay = chance.uniform(0, 0.05)
        asked = chance.choice([signal.SIGTERM, signal.SIGINT])
        code, lines = told_to_stop(program, tmp_path, delay, asked)
        story = f"seed {SEED}, round {round_number}, {asked.name} after {delay:.4f} s: {lines}"
        assert code == 0, story
        assert lines == ["+0", "+1", "+2", "+3", "-3", "-2", "-1", "-0"], story


def told_to_stop(program, folder, delay, asked):
    """Exit code and printed lines of a run that gets a signal ``delay`` after its last boot."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LEX_")}
    with Popen(
        [sys.executable, program],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines = []
        for line in process.stderr:  # "chaos started": signals are listened to from here on
            if "started" in line:
                break
        time.sleep(delay)
        process.send_signal(asked)
        out, _ = process.communicate(timeout=HANG_GUARD_SECONDS)
        lines += out.split()
    return process.returncode, lines
