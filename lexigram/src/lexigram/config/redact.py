"""Tell by name or shape what is secret, and hide it wherever values are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lexigram.config.secrets import MASK, SecretStr

# Hidden wherever the word stands in a name.
_ANYWHERE = ("password", "passwd", "passphrase", "secret", "credential", "privatekey")
# Hidden only at the end of a name: ``token_limit`` and ``max_tokens`` are not secret.
_ENDINGS = (
    *("token", "authtokens", "apitokens", "accesstokens", "authorization", "cookie"),
    *("apikey", "apikeys", "accesskey", "accountkey", "signingkey", "encryptionkey"),
    *("masterkey", "sessionkey", "sharedkey", "authkey"),
)
# Too short to look for inside other words (``bypass``): hidden as the last word of a name only.
_LAST_WORDS = frozenset({"pass", "pwd", "pw", "sig"})

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
_WHOLE_URL = re.compile(r"^([^:]*://)(.*)@", re.DOTALL)
# First form: nothing but credentials before the @. Second: user:password where the password has
# a slash in it, which database drivers accept. Both stop at white space and quotes.
_URL_IN_TEXT = re.compile(r"(\b[A-Za-z][\w+.-]*://)(?:[^\s/?#'\"]*|[^\s:/@'\"]*:[^\s'\"]*)@")
_NAME_IN_TEXT = re.compile(r"([A-Za-z_][\w.-]*)[\"']?\s*[=:]\s*(?!//)")
_VALUE_IN_TEXT = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|(?:(?:bearer|basic|digest|token)\s+)?[^\s&;]+",
    re.IGNORECASE,
)
_BEARER_IN_TEXT = re.compile(r"\b(Bearer)\s+[\w.~+/=-]+", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """True for names such as ``password``, ``api_key``, ``authToken`` or ``DB_PWD``."""
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "".join(words)
    return (
        any(word in joined for word in _ANYWHERE)
        or joined.endswith(_ENDINGS)
        or bool(words and words[-1] in _LAST_WORDS)
    )


def resembles_secret_name(name: str) -> bool:
    """True also for misspelt secret names, so that ``passwrod: x`` does not show its value."""
    from difflib import get_close_matches

    words = [word.lower() for word in _WORD.findall(name)]
    known = (*_ANYWHERE, *_ENDINGS, *_LAST_WORDS)
    tried = ["".join(words), *words]
    return is_secret_name(name) or any(get_close_matches(w, known, 1, 0.75) for w in tried)


def mask(value: Any) -> Any:
    """``***`` for a secret value; None and empty text stay, they tell that nothing is set."""
    empty = value is None or value == "" or (isinstance(value, SecretStr) and not value)
    return (None if value is None else "") if empty else MASK


def mask_url(value: str) -> str:
    """One whole setting with the credentials of a URL or connection string hidden."""
    return redact_text(_WHOLE_URL.sub(rf"\1{MASK}@", value))


def redact_text(text: str) -> str:
    """Free text with URL credentials, ``key=value`` secrets and bearer tokens hidden.

    Best effort: a secret in running text without a name beside it cannot be told apart.
    """
    text = _URL_IN_TEXT.sub(rf"\1{MASK}@", text)
    return _BEARER_IN_TEXT.sub(rf"\1 {MASK}", _redact_pairs(text))


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text without any of the given secrets, plain or as Python would print them."""
    for value in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(repr(value)[1:-1], MASK).replace(value, MASK)
    return text


def _redact_pairs(text: str) -> str:
    parts: list[str] = []
    done = 0
    for name in _NAME_IN_TEXT.finditer(text):
        if name.end() <= done or not is_secret_name(name[1]):
            continue
        value = _VALUE_IN_TEXT.match(text, name.end())
        if value is not None:
            parts += [text[done : name.end()], MASK]
            done = value.end()
    return "".join([*parts, text[done:]])
