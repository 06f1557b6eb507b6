"""What JetStream and the client answer when they refuse, and what to do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from nats.aio.msg import Msg
NOT_FOUND: Final = 404
STATUS_DIGITS: Final = 3

Json: TypeAlias = dict[str, Any]


class ApiError(Exception):
    """JetStream said no."""

    def __init__(self, code: int, number: int, text: str) -> None:
        super().__init__(text)
        self.code, self.number = code, number

    @property
    def is_full(self) -> bool:
        """A limit that an operator set on the stream or the account."""
        text = str(self)
        return "exceeded" in text or "insufficient" in text


class ClosedError(Exception):
    """The connection is gone, was refused, or may not do this."""


Failure: TypeAlias = ApiError | ClosedError | TimeoutError


def refusal(message: Msg) -> Failure | None:
    """Why a publish was not confirmed; None when it was."""
    data = message.data
    if not data:
        return ApiError(status_of(message), 0, "no stream of JetStream answers")
    if b'"error"' not in data:
        return None
    found = json.loads(data)
    return api_error(found["error"]) if "error" in found else None


def api_error(error: Json) -> ApiError:
    return ApiError(error.get("code", 0), error.get("err_code", 0), error.get("description", ""))


def status_of(message: Msg) -> int:
    """The status of an answer without content; 0 for another one."""
    text = (message.headers or {}).get("Status", "")
    return int(text) if text.isdecimal() and len(text) <= STATUS_DIGITS and not message.data else 0


def description_of(message: Msg) -> str:
    return str((message.headers or {}).get("Description", ""))


def explain(error: BaseException) -> tuple[str, str]:
    """The text of an error, and what to do about it."""
    text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))
    low = text.lower()
    if "authorization" in low or "authentication" in low:
        return text, "check user and password or token in the URL"
    if "permissions violation" in low:
        return text, "allow the user $JS.API.>, $JS.ACK.>, _INBOX.> and the subjects of the stream"
    if "jetstream" in low or "no responders" in low:
        return text, "start the server with JetStream (nats-server -js) and allow it in the account"
    if "of the form" in text or "in the url" in low or "url is empty" in low:
        return text, "set url, such as nats://user:password@localhost:4222"
    if isinstance(error, ApiError):
        if error.is_full:
            return text, "raise the limits of the stream or of the account"
        return text, "look at the streams with `nats stream report`"
    return text, "check that the server runs and that url names its host and port"
