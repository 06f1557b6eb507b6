"""``lexigram search``: search the vector index for passages."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lexigram.ai.workers.cli.embedded import run_search
from lexigram.ai.workers.cli.files import make_absolute, shorten_path
from lexigram.ai.workers.cli.ingest import Collection, Data, Target
from lexigram.ai.workers.constants import DEFAULT_COLLECTION
from lexigram.cli.errors import CliError
from lexigram.cli.session import Session, session_of
from lexigram.config.escape import escape_line

if TYPE_CHECKING:
    from rich.text import Text

    from lexigram.ai.workers.vectors.choose import VectorStores
    from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
    from lexigram.contracts.data.vector import SearchResult

_MAX_PASSAGE_LENGTH = 360  # characters
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"-?\d{1,18}")  # of 64 bits
# Stop words: they are not highlighted.
_STOP_WORDS: Final = re.compile(
    r"(an?|and|are|as|at|be|by|can|do|does|for|from|how|i|in|is|it|of|on|or|that|the|there|this"
    r"|to|was|what|when|where|which|who|why|will|with)\Z"
)

app = typer.Typer(help="Search the vector index for passages.")


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Question or keywords.")],
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="Combine vector search and keyword search.")
    ] = False,
    words: Annotated[bool, typer.Option("--words", help="Use keyword search only.")] = False,
    conditions: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="Filter by metadata; repeatable."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=1000, help="Number of results.")] = 5,
    collection: Collection = None,
    target: Target = None,
    data: Data = None,
) -> None:
    """Search passages; print source, heading path and score, best first."""
    if hybrid and words:
        raise CliError("--hybrid and --words exclude each other", hint="use only one of them")
    if not query.strip():
        raise CliError("the query is empty", hint='run lexigram search "a question"')
    session = session_of(ctx)
    filters = _filters(conditions or [])
    mode = "hybrid" if hybrid else "text" if words else "dense"
    find = partial(_search, query, mode, filters, k, collection or DEFAULT_COLLECTION)
    found = run_search(session, target, data, find)
    results = [_describe(rank, one) for rank, one in enumerate(found, 1)]
    output = session.output
    if output.json:
        output.text("", {"query": query, "mode": mode, "results": results})
    elif not results:
        output.note("no results")
    else:
        _print_results(session, results, query)


async def _search(
    query: str,
    mode: str,
    filters: Mapping[str, Any],
    k: int,
    name: str,
    stores: VectorStores,
    embeddings: EmbeddingProviderProtocol,
) -> Sequence[SearchResult]:
    from lexigram.ai.workers.embeddings.checks import check_vectors
    from lexigram.contracts.data.vector import SearchMode, SearchQuery

    store = stores.at()
    if not await store.collection_exists(name):
        raise CliError(
            f"the index has no collection {name!r}",
            hint="run `lexigram ingest PATH` first, with the same --data",
        )
    found = await store.get_collection(name)
    vector: Sequence[float] = ()
    if mode != SearchMode.TEXT:
        _check_model(found.model_id, embeddings.model_id)
        vectors = await embeddings.embed_texts([query])
        [vector] = check_vectors(vectors, 1, embeddings.dimension, embeddings.model_id)
    return await found.search(
        SearchQuery(
            vector=vector, text=query, top_k=k, filter=filters or None, mode=SearchMode(mode)
        )
    )


def _check_model(stored: str | None, bound: str) -> None:
    if stored is not None and stored != bound:
        raise CliError(
            f"the index uses the model {stored}, the application uses {bound}",
            details={"index": stored, "model": bound},
            hint="set ai_workers.embeddings to the model of the index, or search with --words",
        )


def _filters(given: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE; a repeated key matches any of its values. Digits are parsed as numbers."""
    found: dict[str, list[Any]] = {}
    for item in given:
        key, equals, text = item.partition("=")
        if not (equals and key):
            raise CliError(
                f"invalid --filter {item!r}", hint="write KEY=VALUE, such as --filter page=3"
            )
        found.setdefault(key, []).append(_value(key, text))
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def _value(key: str, text: str) -> Any:
    if key == "uri":
        return make_absolute(text) if Path(text).exists() else text
    return int(text) if _NUMBER.fullmatch(text) else text


def _describe(rank: int, result: SearchResult) -> dict[str, Any]:
    metadata = result.metadata
    return {
        "rank": rank,
        "score": round(result.score, 4),
        "source": metadata.get("uri"),
        "title": metadata.get("title"),
        "heading_path": metadata.get("heading_path") or None,
        "page": metadata.get("page"),
        "start": metadata.get("start"),
        "end": metadata.get("end"),
        "passage": result.content,
        "id": result.id,
        "metadata": dict(metadata),
    }


# --- text output ----------------------------------------------------------------------------------


def _print_results(session: Session, results: Sequence[Mapping[str, Any]], query: str) -> None:
    import sys

    from rich.text import Text

    query_terms = extract_terms(query)
    console = session.output.terminal(width=None if sys.stdout.isatty() else 100)
    for result in results:
        head = Text(f"{result['rank']}. ", style="bold")
        head.append(escape_line(_format_source(result)), style="bold cyan")
        head.append(f"  {result['score']:.3f}", style="dim")
        console.print(head, soft_wrap=True)
        if result["heading_path"]:
            heading = escape_line(f"   {result['heading_path']}")
            console.print(Text(heading, style="italic"), soft_wrap=True)
        passage = highlight(
            escape_line(excerpt(result["passage"] or "", query_terms, _MAX_PASSAGE_LENGTH)),
            query_terms,
        )
        for line in passage.wrap(console, max(20, console.width - 3)):
            console.print(Text("   ").append_text(line), soft_wrap=True)
        console.print()


def _format_source(result: Mapping[str, Any]) -> str:
    source = str(result["source"] or result["id"])
    if Path(source).is_absolute():
        source = shorten_path(source)
    return f"{source}, page {result['page']}" if result["page"] is not None else source


def extract_terms(query: str) -> list[str]:
    """Return the words of a query without stop words; all words if there are only stop words."""
    found = [word.casefold() for word in _WORD.findall(query)]
    return [word for word in found if not _STOP_WORDS.match(word)] or found


def matches_query(word: str, query_terms: Sequence[str]) -> bool:
    """True if a word has the stem of a query term: run, runs, running."""
    word = word.casefold()
    return any(_stem(word) == _stem(one) for one in query_terms)


def excerpt(text: str, query_terms: Sequence[str], size: int) -> str:
    """Cut out the part of a passage with the most query terms, as one line."""
    text = " ".join(text.split())
    if len(text) <= size:
        return text
    places = [
        found.start() for found in _WORD.finditer(text) if matches_query(found[0], query_terms)
    ]
    best, best_count = 0, 0
    for index, place in enumerate(places):
        within = bisect_left(places, place + size * 3 // 4) - index
        if within > best_count:
            best, best_count = max(0, place - size // 8), within
    best = min(best, len(text) - size)
    # Whole words at both ends.
    start = text.find(" ", best) + 1 if best else 0
    end = text.rfind(" ", start, start + size) if start + size < len(text) else len(text)
    end = end if end > start else min(start + size, len(text))
    return ("… " if start else "") + text[start:end] + (" …" if end < len(text) else "")


def highlight(text: str, query_terms: Sequence[str]) -> Text:
    """Return the text with the query terms in bold."""
    from rich.text import Text

    highlighted = Text(text)
    for found in _WORD.finditer(text):
        if matches_query(found[0], query_terms):
            highlighted.stylize("bold yellow", found.start(), found.end())
    return highlighted


def _stem(word: str) -> str:
    """A simple stemmer, sufficient for highlighting."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word
