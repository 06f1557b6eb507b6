"""The web host: routes, probes and figures of a running application over HTTP; extra ``[web]``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.web.auth import Caller
    from lexigram.web.config import WebConfig
    from lexigram.web.errors import (
        BodyTooLargeError,
        HostRefusedError,
        RequestInvalidError,
        ShuttingDownError,
        UnauthenticatedError,
        WebBindError,
        WebError,
        WebInjectionError,
        WebRouteError,
    )
    from lexigram.web.host import WebHost
    from lexigram.web.inject import Inject, current_caller
    from lexigram.web.module import WebModule
    from lexigram.web.problems import Problem
    from lexigram.web.provider import WebProvider
    from lexigram.web.server import Address
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.web.auth": ["Caller"],
            "lexigram.web.config": ["WebConfig"],
            "lexigram.web.errors": [
                "BodyTooLargeError",
                "HostRefusedError",
                "RequestInvalidError",
                "ShuttingDownError",
                "UnauthenticatedError",
                "WebBindError",
                "WebError",
                "WebInjectionError",
                "WebRouteError",
            ],
            "lexigram.web.host": ["WebHost"],
            "lexigram.web.inject": ["Inject", "current_caller"],
            "lexigram.web.module": ["WebModule"],
            "lexigram.web.problems": ["Problem"],
            "lexigram.web.provider": ["WebProvider"],
            "lexigram.web.server": ["Address"],
        },
    )

__all__ = [
    "Address",
    "BodyTooLargeError",
    "Caller",
    "HostRefusedError",
    "Inject",
    "Problem",
    "RequestInvalidError",
    "ShuttingDownError",
    "UnauthenticatedError",
    "WebBindError",
    "WebConfig",
    "WebError",
    "WebHost",
    "WebInjectionError",
    "WebModule",
    "WebProvider",
    "WebRouteError",
    "current_caller",
]
