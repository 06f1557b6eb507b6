"""The web host: routes, probes and metrics of a running application over HTTP; extra ``[web]``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.web.auth import Caller
    from lexigram.web.config import WebConfig
    from lexigram.web.errors import (
        BodyTooLargeError,
        CrossSiteError,
        HeadersTooLargeError,
        HostRefusedError,
        RequestInvalidError,
        RequestTimeoutError,
        ShuttingDownError,
        TooManyConnectionsError,
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
                "CrossSiteError",
                "HeadersTooLargeError",
                "HostRefusedError",
                "RequestInvalidError",
                "RequestTimeoutError",
                "ShuttingDownError",
                "TooManyConnectionsError",
                "UnauthenticatedError",
                "WebBindError",
                "WebError",
                "WebInjectionError",
                "WebRouteError",
            ],
            # Not from their modules: the host names the extra that is missing.
            "lexigram.web.host": ["Address", "Problem", "WebHost"],
            "lexigram.web.inject": ["Inject", "current_caller"],
            "lexigram.web.module": ["WebModule"],
            "lexigram.web.provider": ["WebProvider"],
        },
    )

__all__ = [
    "Address",
    "BodyTooLargeError",
    "Caller",
    "CrossSiteError",
    "HeadersTooLargeError",
    "HostRefusedError",
    "Inject",
    "Problem",
    "RequestInvalidError",
    "RequestTimeoutError",
    "ShuttingDownError",
    "TooManyConnectionsError",
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
