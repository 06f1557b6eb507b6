"""E-mail messages: subject, people, date and the body that reads best."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

from lexigram.ai.workers.document_ingestion.blocks import escaped, scan
from lexigram.ai.workers.document_ingestion.charset import decode
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBrokenError,
    IngestionInputError,
)
from lexigram.ai.workers.document_ingestion.formats.html import markdown_of
from lexigram.ai.workers.document_ingestion.formats.source import Source
from lexigram.ai.workers.document_ingestion.types import Document

_SHOWN = ("From", "To", "Cc", "Date")


def parse_mail(data: bytes, source: Source) -> Document:
    """The plain body, else the HTML one; attachments are named and not read."""
    try:
        return _parsed(data, source)
    except IngestionInputError:
        raise
    except Exception as error:  # the library raises almost anything for odd headers
        raise DocumentBrokenError(source.name, f"{type(error).__name__}: {error}") from error


def _parsed(data: bytes, source: Source) -> Document:
    message = email.message_from_bytes(data, policy=email.policy.default)
    if not any(message[name] for name in ("From", "Subject", "Date", "To", "Message-ID")):
        raise DocumentBrokenError(source.name, "it has no header of a message")
    subject = " ".join(str(message["Subject"] or "").split())
    heads = [f"{name}: {message[name]}" for name in _SHOWN if message[name]]
    attachments = [str(part.get_filename() or "unnamed") for part in message.iter_attachments()]
    if attachments:
        heads.append(f"Attachments: {', '.join(attachments)}")
    parts = [f"# {subject}" if subject else "", escaped("\n".join(heads)), _body(message, source)]
    content = "\n\n".join(filter(None, parts))
    metadata: dict[str, object] = {"attachments": attachments} if attachments else {}
    if subject:
        metadata["title"] = subject
    return Document(content, metadata, scan(content))


def _body(message: EmailMessage, source: Source) -> str:
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    payload = body.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    text, _ = decode(data, source.name, body.get_content_charset())
    if body.get_content_subtype() == "html":
        return markdown_of(text)[0]
    return escaped(text).strip()
