"""The folder on disk behind a store: no link in it leads out of it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from anyio import to_thread

from lexigram.blobs.paths import path_error


class Folder:
    """Looks at links before the store follows them.

    A process that can write into the folder itself could still swap a name for a link between the
    look and the use: this guards against links that lie there, not against such a race.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    async def check(self, path: str) -> None:
        """Raise BlobPathError when the path leaves the folder by a link."""
        if await to_thread.run_sync(self._leaves, path):
            raise path_error(path, "a link leads it out of the store")

    async def keep(self, paths: Sequence[str]) -> list[bool]:
        """For each path, whether it stays inside; in one hop for all."""
        return await to_thread.run_sync(lambda: [not self._leaves(path) for path in paths])

    def _leaves(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118 - resolve() raises for a loop
        return os.path.commonpath([self.root, real]) != self.root
