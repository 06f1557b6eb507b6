"""The testing kit: boot an application with fakes, and say what it should have done.

Names load on first use, so that importing one part does not import the others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.testing.assertions import (
        assert_degraded,
        assert_err,
        assert_healthy,
        assert_ok,
        assert_unhealthy,
    )
    from lexigram.testing.environment import TestEnvironment, boot, override
    from lexigram.testing.logs import CapturedLogs, LoggedRecord, capture_logs
    from lexigram.testing.waiting import wait_until
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.testing.assertions": [
                "assert_degraded",
                "assert_err",
                "assert_healthy",
                "assert_ok",
                "assert_unhealthy",
            ],
            "lexigram.testing.environment": ["TestEnvironment", "boot", "override"],
            "lexigram.testing.logs": ["CapturedLogs", "LoggedRecord", "capture_logs"],
            "lexigram.testing.waiting": ["wait_until"],
        },
    )

__all__ = [
    "CapturedLogs",
    "LoggedRecord",
    "TestEnvironment",
    "assert_degraded",
    "assert_err",
    "assert_healthy",
    "assert_ok",
    "assert_unhealthy",
    "boot",
    "capture_logs",
    "override",
    "wait_until",
]
