"""Parse documents with a Docling server, which also reads scanned pages and complex layouts."""

from __future__ import annotations

from typing import Any, cast

import httpx

from lexigram.ai.workers.document_ingestion.blocks import scan, title_of
from lexigram.ai.workers.document_ingestion.errors import (
    DocumentBrokenError,
    ParserUnavailableError,
)
from lexigram.ai.workers.document_ingestion.types import Document

_PATH = "/v1/convert/file"
_CONNECT_SECONDS = 10.0
_BUSY_STATUSES = (408, 425, 429)


class DoclingParser:
    """Implements ContentParser by ``POST /v1/convert/file`` of docling-serve.

    One request per document; the caller limits the concurrency.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"X-Api-Key": api_key} if api_key else {}
        self._timeout = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS))
        self._transport = transport

    async def parse_bytes(
        self, data: bytes, name: str, *, mime_type: str | None = None, ocr: bool = True
    ) -> Document:
        """Parse a document on the server; after a ParserUnavailableError a retry may succeed."""
        file_name = name.rsplit("/", 1)[-1] or "document"
        try:
            async with httpx.AsyncClient(
                timeout=self._timeout, transport=self._transport, headers=self._headers
            ) as client:
                response = await client.post(
                    self.url + _PATH,
                    files={"files": (file_name, data, mime_type or "application/octet-stream")},
                    data={"to_formats": "md", "do_ocr": "true" if ocr else "false"},
                )
        except httpx.HTTPError as error:
            raise ParserUnavailableError(
                f"the Docling server {self.url} did not respond for {name}: "
                f"{type(error).__name__} {error}".rstrip(),
                details={"url": self.url, "document": name},
                cause=error,
            ) from error
        return _document(self._read_response(response, name), name)

    def _read_response(self, response: httpx.Response, name: str) -> dict[str, Any]:
        status = response.status_code
        if status >= 500 or status in _BUSY_STATUSES or status in (401, 403, 404):
            raise ParserUnavailableError(
                f"the Docling server {self.url} responded with status {status} for {name}",
                details={"url": self.url, "status": status, "document": name},
                hint="check ai_workers.ingestion.docling_url and docling_api_key"
                if status in (401, 403, 404)
                else None,
            )
        if status >= 400:
            raise DocumentBrokenError(name, f"the Docling server rejected it with status {status}")
        try:
            answer = response.json()
        except ValueError as error:
            raise ParserUnavailableError(
                f"the Docling server {self.url} did not return JSON for {name}", cause=error
            ) from error
        if not isinstance(answer, dict) or not {"document", "status"} & answer.keys():
            raise ParserUnavailableError(
                f"the Docling server {self.url} responded without a document for {name}"
            )
        return cast("dict[str, Any]", answer)


def _document(answer: dict[str, Any], name: str) -> Document:
    found = cast("dict[str, Any] | None", answer.get("document"))
    content = found.get("md_content") if isinstance(found, dict) else None
    if answer.get("status") == "failure" or not isinstance(content, str):
        errors = cast("list[str | dict[str, Any]]", answer.get("errors") or [])
        reason = "; ".join(
            str(error.get("error_message", error)) if isinstance(error, dict) else str(error)
            for error in errors
        )
        raise DocumentBrokenError(name, f"the Docling server could not read it: {reason or answer}")
    text = content.replace("\r\n", "\n").replace("\0", "")
    blocks = scan(text)
    title = title_of(blocks)
    metadata = {"parser": "docling", "docling_status": str(answer.get("status", "success"))}
    return Document(text, {**metadata, **({"title": title} if title else {})}, blocks)
