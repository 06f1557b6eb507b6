"""Section ``web``: where the host listens, who may call it, and within which limits."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import Attribute, field, frozen
from attrs.validators import and_, ge, gt, le, min_len, optional

from lexigram.config import BaseConfig, SecretStr, doc, secret


def _are_networks(_: object, __: Attribute[Any], networks: tuple[str, ...]) -> None:
    for network in networks:
        ipaddress.ip_network(network, strict=False)


@frozen(kw_only=True)
class WebConfig(BaseConfig):
    """Section ``web``. Without keys and trusted proxies only this machine can be served."""

    config_section: ClassVar[str] = "web"

    host: str = field(
        default="127.0.0.1", validator=min_len(1), metadata=doc("Address or name to listen on.")
    )
    port: int = field(
        default=8000,
        validator=and_(ge(0), le(65535)),
        metadata=doc("Port to listen on; 0: one that is free."),
    )
    api_keys: Mapping[str, SecretStr] = field(
        factory=dict,
        metadata=secret(
            "Keys by the name of their holder: the key itself, or sha256: and its hash."
        ),
    )
    trusted_proxies: tuple[str, ...] = field(
        default=(),
        validator=_are_networks,
        metadata=doc("Addresses or networks of proxies whose headers about the client count."),
    )
    proxy_user_header: str = field(
        default="X-Forwarded-User",
        validator=min_len(1),
        metadata=doc("Header in which a trusted proxy names the user it has let in."),
    )
    max_body_bytes: int = field(
        default=10 * 1024 * 1024,
        validator=gt(0),
        metadata=doc("Largest body of a request; more is refused with 413."),
    )
    header_timeout: float = field(
        default=10.0,
        validator=gt(0),
        metadata=doc("Seconds a client may take to send the headers of a request."),
    )
    body_timeout: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Seconds to wait for the body of a request in all; more is refused with 408."),
    )
    send_timeout: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Seconds a client may take nothing of a response; then it is cut off."),
    )
    max_connections: int = field(
        default=512,
        validator=gt(0),
        metadata=doc("Connections at the same time; more are refused with 503."),
    )
    handler_timeout: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Seconds until an endpoint must begin to answer; then 504. None: no limit."),
    )
    cancel_on_disconnect: bool = field(
        default=True,
        metadata=doc("Cancel an endpoint whose client has gone away; false lets it finish."),
    )
    drain_delay: float = field(
        default=0.0,
        validator=ge(0),
        metadata=doc("Seconds between /health/ready turning 503 and the port being closed."),
    )
    drain_timeout: int = field(
        default=10,
        validator=gt(0),
        metadata=doc("Seconds requests may take to end after the port was closed."),
    )
    keep_alive: int = field(
        default=5, validator=gt(0), metadata=doc("Seconds an idle connection stays open.")
    )
    disabled_contributors: tuple[str, ...] = field(
        default=(), metadata=doc("Contributors of installed packages to leave out, by id.")
    )
