"""What can go wrong between a client and an endpoint, and when the host starts."""

from __future__ import annotations

from lexigram.contracts.core.errors import ConfigurationError, LexigramError


class WebError(LexigramError):
    """A request could not be answered, for a reason that stays in the log."""

    code = "LEX_ERR_WEB_001"


class WebBindError(WebError, ConfigurationError):
    """The address cannot be served: it is open to others without a key, or taken."""

    code = "LEX_ERR_WEB_002"


class WebRouteError(WebError, ConfigurationError):
    """Two routes want one path, or something that is no router was given."""

    code = "LEX_ERR_WEB_003"


class WebInjectionError(WebError):
    """An endpoint asks for a service that cannot be given to it."""

    code = "LEX_ERR_WEB_004"
    is_retryable = False


class UnauthenticatedError(WebError):
    """The request brings no valid key and does not come from a trusted proxy with a user."""

    code = "LEX_ERR_WEB_005"


class BodyTooLargeError(WebError):
    """The body of the request is larger than ``web.max_body_bytes``."""

    code = "LEX_ERR_WEB_006"


class HostRefusedError(WebError):
    """A host that serves this machine only was called by another name."""

    code = "LEX_ERR_WEB_007"


class RequestInvalidError(WebError):
    """The request does not fit what the endpoint takes; each problem is listed by its path."""

    code = "LEX_ERR_WEB_008"


class ShuttingDownError(WebError):
    """The host stopped, and the request had not ended within ``web.drain_timeout``."""

    code = "LEX_ERR_WEB_009"


class RequestTimeoutError(WebError):
    """The body of the request did not arrive within ``web.body_timeout``."""

    code = "LEX_ERR_WEB_010"


class TooManyConnectionsError(WebError):
    """``web.max_connections`` are open; others are refused."""

    code = "LEX_ERR_WEB_011"


class HeadersTooLargeError(WebError):
    """Path, query and headers of the request are larger than 16 KiB."""

    code = "LEX_ERR_WEB_013"


class CrossSiteError(WebError):
    """A page of another site sent a request that may change something."""

    code = "LEX_ERR_WEB_012"
