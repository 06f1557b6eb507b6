"""Start the application, let two guests in, stop."""

import anyio

from examples.hello.app import create
from examples.hello.desk import Desk


async def main() -> None:
    async with create() as app:
        for guest in ("Ada", "Grace"):
            async with app.container.scope() as visit:  # one visit, one desk
                desk = await visit.resolve(Desk)
                print(desk.welcome(guest))


if __name__ == "__main__":
    anyio.run(main)
