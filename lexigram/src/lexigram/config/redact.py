"""Recognise secrets by name or shape, and hide them wherever values are shown."""

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

# Characters of one text that are read and shown: enough for a long traceback.
MAX_TEXT_LENGTH = 64 * 1024

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
_WHOLE_URL = re.compile(r"^([^:]*://)(.*)@", re.DOTALL)
# Every expression below reads a text once: possessive quantifiers and the look-behind keep it from
# starting again inside of what it has already seen. No group is repeated possessively: Python 3.11.2,
# which Debian 12 has, then drops the first character of the group that follows.
_RUN_WITH_URL = re.compile(r"[^\s'\"]++")
_AUTHORITY_ENDS = re.compile(r"[/?#]")
_PASSWORD_BEGINS = re.compile(r"[^:/@]*+:")
_NAME_IN_TEXT = re.compile(
    r"(?<![\w.-])(?:(?![A-Za-z_])[\w.-])*([A-Za-z_][\w.-]*+)[\"']?+\s*+[=:]\s*+(?!//)"
)
_VALUE_IN_TEXT = re.compile(
    r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*\"|'[^'\\]*+(?:\\.[^'\\]*+)*'|(?:(?:bearer|basic|digest|token)\s+)?[^\s&;]+",
    re.IGNORECASE,
)
# In a text that was cut: the quotation mark at its end may be missing.
_VALUE_IN_CUT_TEXT = re.compile(
    r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*(?:\"|\\?\Z)|'[^'\\]*+(?:\\.[^'\\]*+)*(?:'|\\?\Z)"
    r"|(?:(?:bearer|basic|digest|token)\s+)?[^\s&;]+",
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
    """``***`` for a secret value; None and empty text stay: they show that nothing is set."""
    empty = value is None or value == "" or (isinstance(value, SecretStr) and not value)
    return (None if value is None else "") if empty else MASK


def mask_url(value: str) -> str:
    """One whole setting with the credentials of a URL or connection string hidden."""
    return redact_text(_WHOLE_URL.sub(rf"\1{MASK}@", value))


def redact_text(text: str) -> str:
    """Free text with URL credentials, ``key=value`` secrets and bearer tokens hidden.

    Best effort: a secret in running text without a name beside it is not recognised. A text
    longer than ``MAX_TEXT_LENGTH`` is truncated, with a note that gives its length.
    """
    length = len(text)
    is_cut = length > MAX_TEXT_LENGTH
    text = _redact_urls(text[:MAX_TEXT_LENGTH], is_cut=is_cut)
    text = _BEARER_IN_TEXT.sub(rf"\1 {MASK}", _redact_pairs(text, is_cut=is_cut))
    return f"{text}… (truncated: {length} characters)" if is_cut else text


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text without any of the given secrets, plain or as Python would print them."""
    for value in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(repr(value)[1:-1], MASK).replace(value, MASK)
    return text


def _redact_urls(text: str, *, is_cut: bool) -> str:
    if "://" not in text:
        return text
    return _RUN_WITH_URL.sub(
        lambda run: _redact_run(run[0], is_cut=is_cut and run.end() == len(text)), text
    )


def _redact_run(run: str, *, is_cut: bool) -> str:
    """Text without white space and quotes, with the credentials of the URLs in it hidden."""
    parts: list[str] = []
    done, begin = 0, run.find("://")
    last = run.rfind("@")
    while begin >= 0:
        after = begin + 3
        if begin > 0 and (run[begin - 1].isalnum() or run[begin - 1] in "_+.-"):
            # Nothing but credentials before the @; else user:password where the password has a
            # slash in it, which database drivers accept.
            end = run.rfind("@", after, _end_of_authority(run, after))
            if end < 0 and last > after:
                user = _PASSWORD_BEGINS.match(run, after)
                end = last if user is not None and user.end() <= last else -1
            if end < 0 and is_cut and run.find("://", after) < 0:
                return "".join([*parts, run[done:after], MASK])  # the @ may have been cut off
            if end >= 0:
                parts += [run[done:after], MASK]
                done = after = end
        begin = run.find("://", after)
    return "".join([*parts, run[done:]])


def _end_of_authority(run: str, begin: int) -> int:
    found = _AUTHORITY_ENDS.search(run, begin)
    return len(run) if found is None else found.start()


def _redact_pairs(text: str, *, is_cut: bool) -> str:
    parts: list[str] = []
    done = 0
    value_at = (_VALUE_IN_CUT_TEXT if is_cut else _VALUE_IN_TEXT).match
    for name in _NAME_IN_TEXT.finditer(text):
        if name.end() <= done or not is_secret_name(name[1]):
            continue
        value = value_at(text, name.end())
        if value is not None:
            parts += [text[done : name.end()], MASK]
            done = value.end()
    return "".join([*parts, text[done:]])
