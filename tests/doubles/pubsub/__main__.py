"""``python -m tests.doubles.pubsub [folder]``: serves until its input ends; tells its port.

With a folder of certificates (``secrets.make``) it wants TLS and the token of an account.
"""

import asyncio
import sys
from pathlib import Path

from tests.doubles.pubsub.broker import Project
from tests.doubles.pubsub.wire import serve


async def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    server, port = await serve(Project(), folder)
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)  # the parent is gone, or wants us gone
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
