"""Who is calling: by API key, or as a trusted proxy says."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from attrs import frozen

from lexigram.config import SecretStr
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.web.config import WebConfig

SHORTEST_KEY = 16  # characters: what is shorter can be guessed
HASHED = "sha256:"
# They change nothing, so any page may send them.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
# RFC 9110: a name, an address, or an IPv6 address in brackets; then perhaps a port.
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::\d*)?")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")

Headers = Mapping[bytes, bytes]


@frozen(kw_only=True)
class Caller:
    """Who sent a request: the name of the key, or the user a proxy named."""

    name: str
    via: Literal["key", "proxy"]


class Guard:
    """Knows the keys and proxies of a configuration; keeps hashes, never a key."""

    def __init__(self, config: WebConfig) -> None:
        self._keys = [(name, _digest_of(key)) for name, key in config.api_keys.items()]
        self._proxies = [ipaddress.ip_network(n, strict=False) for n in config.trusted_proxies]
        self._user_header = config.proxy_user_header.lower().encode()

    @property
    def is_needed(self) -> bool:
        """True when requests have to say who sends them."""
        return bool(self._keys or self._proxies)

    def caller(self, headers: Headers, peer: str | None) -> Caller | None:
        """Who sent the request; None when that is not known."""
        key = _key_in(headers)
        if key is not None:
            return self._holder(key)
        user = headers.get(self._user_header)
        if user and self._is_proxy(peer):
            return Caller(name=user.decode("latin-1").strip(), via="proxy")
        return None

    def _holder(self, key: bytes) -> Caller | None:
        digest = hashlib.sha256(key).digest()
        # Every key is compared, each in constant time: how long it takes tells nothing.
        found = [name for name, known in self._keys if hmac.compare_digest(known, digest)]
        return Caller(name=found[0], via="key") if found else None

    def _is_proxy(self, peer: str | None) -> bool:
        try:
            address = ipaddress.ip_address(peer or "")
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


def check_keys(config: WebConfig) -> None:
    """Raise ConfigurationError for a key that is none, by the name of its holder."""
    for name, key in config.api_keys.items():
        text = key.reveal()
        if text.startswith(HASHED) and not _SHA256.fullmatch(text):
            raise ConfigurationError(
                f"web.api_keys: what {name} has is no hash",
                hint=f"write {HASHED} and the 64 hexadecimal digits of the sha256 of the key",
            )
        if len(text) < SHORTEST_KEY:
            raise ConfigurationError(
                f"web.api_keys: the key {name} has is shorter than {SHORTEST_KEY} characters",
                hint='make one: python -c "import secrets; print(secrets.token_urlsafe())"',
            )


@lru_cache(maxsize=64)  # a client sends the same one with every request
def is_local_name(host: bytes | None) -> bool:
    """True for a Host header that can only mean this machine.

    A page in a browser could otherwise reach a host without keys under a name of its own that
    resolves to a loopback address.
    """
    if host is None:
        return True  # HTTP/1.0; browsers always send one
    found = _HOST.fullmatch(host.decode("latin-1").strip().lower())
    if found is None:
        return False
    name = found["v6"] or found["name"]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_cross_site(method: str, headers: Headers, caller: Caller | None) -> bool:
    """True for a request with which a page of another site would change something here.

    A browser lets any page send forms, and JSON called text, to this host, with the session of a
    proxy if there is one; it says where they come from, and a page cannot change what it says. A
    key is not sent by itself. What says nothing is no browser.
    """
    if method in SAFE_METHODS or (caller is not None and caller.via == "key"):
        return False
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        # none: the address was typed. A page of another port is same-site, and still foreign.
        return site.lower() not in {b"same-origin", b"none"}
    origin = headers.get(b"origin")
    if origin is None:
        return False
    names = {headers.get(b"host", b"").lower()}
    if caller is not None:  # let in by a trusted proxy, which may call the host by another name
        names.add(headers.get(b"x-forwarded-host", b"").lower())
    return origin.lower().partition(b"://")[2] not in names - {b""}


def _key_in(headers: Headers) -> bytes | None:
    key = headers.get(b"x-api-key")
    if key is not None:
        return key.strip()
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def _digest_of(key: SecretStr) -> bytes:
    text = key.reveal()
    if _SHA256.fullmatch(text):
        return bytes.fromhex(text.partition(":")[2])
    return hashlib.sha256(text.encode()).digest()
