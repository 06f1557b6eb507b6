"""The bus on SQLite and PostgreSQL."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.sql.driver import CAPABILITIES, SqlDriver, SqlQueue, build
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.sql.driver": [
                "CAPABILITIES",
                "SqlDriver",
                "SqlQueue",
                "build",
            ]
        },
    )

__all__ = ["CAPABILITIES", "SqlDriver", "SqlQueue", "build"]
