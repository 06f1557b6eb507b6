"""E-mail messages: subject, sender, recipients, date and body."""

from __future__ import annotations

import contextlib
import email
import re
from collections.abc import Iterator
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.policy import Compat32
from typing import cast

from lexigram.ai.workers.document_ingestion.blocks import escape_markdown, scan
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBrokenError,
    DocumentNestedError,
    IngestionInputError,
)
from lexigram.ai.workers.document_ingestion.formats.html import markdown_of
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.sniffing import decode
from lexigram.ai.workers.document_ingestion.types import Document

_SHOWN_HEADERS = ("From", "To", "Cc", "Date")
_MAX_HEADER_LENGTH = 2_000  # characters; parsing header parameters takes quadratic time
# The parser compares each line with the boundaries of all enclosing parts.
_MAX_MULTIPARTS = 50
_MULTIPART = re.compile(rb"^content-type:\s*multipart/", re.IGNORECASE | re.MULTILINE)


def parse_mail(data: bytes, source: Source) -> Document:
    """Parse the plain body, else the HTML body; attachments are only listed."""
    if sum(1 for _ in _MULTIPART.finditer(data)) > _MAX_MULTIPARTS:
        raise DocumentNestedError(source.name, "multipart parts", _MAX_MULTIPARTS)
    try:
        return _parse(data, source)
    except (IngestionInputError, MemoryError):
        raise
    except Exception as error:  # the library raises many types for invalid headers
        raise DocumentBrokenError(source.name, f"{type(error).__name__}: {error}") from error


def _parse(data: bytes, source: Source) -> Document:
    message = email.message_from_bytes(data, policy=_Policy())
    if not any(message[name] for name in ("From", "Subject", "Date", "To", "Message-ID")):
        raise DocumentBrokenError(source.name, "it has no message headers")
    subject = _decode_words(message["Subject"] or "")
    heads = [f"{name}: {_decode_words(message[name])}" for name in _SHOWN_HEADERS if message[name]]
    parts = list(_parts(message))
    attachments = [
        _decode_words(part.get_filename() or "unnamed") for part in parts if _is_file(part)
    ]
    if attachments:
        heads.append(f"Attachments: {', '.join(attachments)}")
    disposition = [
        f"# {subject}" if subject else "",
        escape_markdown("\n".join(heads)),
        _body(parts, source),
    ]
    content = "\n\n".join(filter(None, disposition))
    metadata: dict[str, object] = {"attachments": attachments} if attachments else {}
    if subject:
        metadata["title"] = subject
    return Document(content, metadata, scan(content))


class _Policy(Compat32):
    """Reads headers as truncated strings; the newer policies parse them with a slow grammar."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return (
            value[:_MAX_HEADER_LENGTH].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        )


def _decode_words(value: str) -> str:
    """Decode encoded words of a header; undecodable values are returned unchanged."""
    with contextlib.suppress(HeaderParseError, LookupError, ValueError):
        value = str(make_header(decode_header(value)))
    return " ".join(value.split())


def _parts(message: Message) -> Iterator[Message]:
    """Yield the parts that are not containers; an embedded message is an attachment."""
    if message.get_content_maintype() == "multipart" and message.is_multipart():
        for part in cast("list[Message]", message.get_payload()):
            yield from _parts(part)
    else:
        yield message


def _is_file(part: Message) -> bool:
    kind, disposition = part.get_content_maintype(), part.get_content_disposition()
    has_name = disposition != "inline" and part.get_filename() is not None
    return disposition == "attachment" or kind == "message" or (kind != "text" and has_name)


def _body(parts: list[Message], source: Source) -> str:
    texts = {
        part.get_content_type(): part
        for part in reversed(parts)  # the first of each type
        if not _is_file(part)
    }
    body = texts.get("text/plain") or texts.get("text/html")
    if body is None:
        return ""
    payload = body.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    text, _ = decode(data, source.name, body.get_content_charset())
    if body.get_content_type() == "text/html":
        return markdown_of(text)[0]
    return escape_markdown(text).strip()
