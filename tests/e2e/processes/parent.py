"""A process with a pool: one child computes for ever, one waits for its next call.

Usage: parent.py FOLDER. It writes ``idle`` and ``busy``, the numbers of its children.
"""

import sys
from pathlib import Path

import anyio
import work  # the folder of a program is on its path

from lexigram.processes import ProcessPool


async def main(folder: Path) -> None:
    async with ProcessPool(2) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run, work.spin, str(folder / "busy"))
        number = await pool.run(work.pid)
        await anyio.Path(folder / "idle").write_text(str(number))
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
