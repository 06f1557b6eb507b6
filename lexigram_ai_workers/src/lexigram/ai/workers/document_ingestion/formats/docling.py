"""Let a Docling server parse: it reads scanned pages and layouts that pdfium does not."""

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
_TOO_BUSY = (408, 425, 429)


class DoclingParser:
    """Implements ContentParser by ``POST /v1/convert/file`` of docling-serve.

    One request per document; how many at a time is for the caller to bound.
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
        """The document as the server reads it; ParserUnavailableError may be tried again."""
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
                f"the Docling server {self.url} did not answer for {name}: "
                f"{type(error).__name__} {error}".rstrip(),
                details={"url": self.url, "document": name},
                cause=error,
            ) from error
        return _document(self._answer(response, name), name)

    def _answer(self, response: httpx.Response, name: str) -> dict[str, Any]:
        status = response.status_code
        if status >= 500 or status in _TOO_BUSY or status in (401, 403, 404):
            raise ParserUnavailableError(
                f"the Docling server {self.url} answered {status} for {name}",
                details={"url": self.url, "status": status, "document": name},
                hint="check ai_workers.ingestion.docling_url and docling_api_key"
                if status in (401, 403, 404)
                else None,
            )
        if status >= 400:
            raise DocumentBrokenError(name, f"the Docling server refused it with {status}")
        try:
            answer = response.json()
        except ValueError as error:
            raise ParserUnavailableError(
                f"the Docling server {self.url} answered no JSON for {name}", cause=error
            ) from error
        return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


def _document(answer: dict[str, Any], name: str) -> Document:
    found = cast("dict[str, Any] | None", answer.get("document"))
    content = found.get("md_content") if isinstance(found, dict) else None
    if answer.get("status") == "failure" or not isinstance(content, str):
        errors = cast("list[str | dict[str, Any]]", answer.get("errors") or [])
        why = "; ".join(
            str(one.get("error_message", one)) if isinstance(one, dict) else str(one)
            for one in errors
        )
        raise DocumentBrokenError(name, f"the Docling server could not read it: {why or answer}")
    text = content.replace("\r\n", "\n").replace("\0", "")
    blocks = scan(text)
    title = title_of(blocks)
    metadata = {"parser": "docling", "docling_status": str(answer.get("status", "success"))}
    return Document(text, {**metadata, **({"title": title} if title else {})}, blocks)
