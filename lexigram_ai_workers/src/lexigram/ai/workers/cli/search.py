"""``lexigram search``: the passages of the index that are nearest to a question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lexigram.ai.workers.cli.embedded import choose_application
from lexigram.ai.workers.cli.files import absolute
from lexigram.ai.workers.cli.files import shown as shown_path
from lexigram.ai.workers.cli.ingest import Collection, Data, Target
from lexigram.cli.errors import CliError
from lexigram.cli.session import Session, session_of

if TYPE_CHECKING:
    from rich.text import Text

    from lexigram.ai.workers.vectors.choose import VectorStores
    from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
    from lexigram.contracts.data.vector import SearchResult

_PASSAGE = 360  # characters of a passage that people see
_WORD = re.compile(r"\w+")
# Words of a question that say nothing about its subject.
_FILLERS: Final = re.compile(
    r"(an?|and|are|as|at|be|by|can|do|does|for|from|how|i|in|is|it|of|on|or|that|the|there|this"
    r"|to|was|what|when|where|which|who|why|will|with)\Z"
)

app = typer.Typer(help="Find passages in the index.")


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A question, or words.")],
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="By meaning and by words, ranked together.")
    ] = False,
    words: Annotated[bool, typer.Option("--words", help="By words only.")] = False,
    conditions: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="Only passages with it; repeatable."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=1000, help="How many.")] = 5,
    collection: Collection = None,
    target: Target = None,
    data: Data = None,
) -> None:
    """Passages with source, heading path and score, the best first."""
    if hybrid and words:
        raise CliError("--hybrid and --words exclude each other", hint="leave one out")
    if not query.strip():
        raise CliError("there is nothing to look for", hint='lexigram search "a question"')
    session = session_of(ctx)
    choose_application(session, target, data, must_exist=True)
    filters = _filters(conditions or [])
    mode = "hybrid" if hybrid else "text" if words else "dense"
    results = [
        _described(place, one)
        for place, one in enumerate(_found(session, query, mode, filters, k, collection), 1)
    ]
    output = session.output
    if output.json:
        output.text("", {"query": query, "mode": mode, "results": results})
    elif not results:
        output.note("nothing found")
    else:
        _draw(session, results, query)


def _found(
    session: Session,
    query: str,
    mode: str,
    filters: Mapping[str, Any],
    k: int,
    collection: str | None,
) -> Sequence[SearchResult]:
    from lexigram.ai.workers.embeddings.checks import checked_vectors
    from lexigram.ai.workers.steps import StoreParams
    from lexigram.ai.workers.vectors.choose import VectorStores
    from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
    from lexigram.contracts.data.vector import SearchMode, SearchQuery

    name = collection or StoreParams().collection_name

    async def call(
        stores: VectorStores | None, embeddings: EmbeddingProviderProtocol | None
    ) -> Sequence[SearchResult]:
        if stores is None or embeddings is None:
            raise CliError(
                f"{session.application.name} has no AI workers",
                hint="add WorkersModule to its modules",
            )
        store = stores.at()
        if not await store.collection_exists(name):
            raise CliError(
                f"there is no collection {name!r} in the index",
                hint="fill it: lexigram ingest PATH, and give --data as then",
            )
        found = await store.get_collection(name)
        vector: Sequence[float] = ()
        if mode != SearchMode.TEXT:
            _check_model(found.model_id, embeddings.model_id)
            vectors = await embeddings.embed_texts([query])
            [vector] = checked_vectors(vectors, 1, embeddings.dimension, embeddings.model_id)
        return await found.search(
            SearchQuery(
                vector=vector, text=query, top_k=k, filter=filters or None, mode=SearchMode(mode)
            )
        )

    call.__annotations__ = {  # read by the container at run time
        "stores": VectorStores | None,
        "embeddings": EmbeddingProviderProtocol | None,
    }
    results: Sequence[SearchResult] = session.run(call)
    return results


def _check_model(stored: str | None, bound: str) -> None:
    if stored is not None and stored != bound:
        raise CliError(
            f"the index was made with {stored}, and the model in use is {bound}",
            details={"index": stored, "model": bound},
            hint="set ai_workers.embeddings to the model of the index, or search with --words",
        )


def _filters(given: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE; one key several times means one of its values. Numbers are numbers."""
    found: dict[str, list[Any]] = {}
    for item in given:
        key, equals, text = item.partition("=")
        if not (equals and key):
            raise CliError(
                f"--filter {item!r} is not of the form KEY=VALUE", hint="--filter page=3"
            )
        found.setdefault(key, []).append(_value(key, text))
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def _value(key: str, text: str) -> Any:
    if key == "uri":
        return absolute(text) if Path(text).exists() else text
    return int(text) if text.lstrip("-").isdecimal() else text


def _described(place: int, result: SearchResult) -> dict[str, Any]:
    facts = result.metadata
    return {
        "rank": place,
        "score": round(result.score, 4),
        "source": facts.get("uri"),
        "title": facts.get("title"),
        "heading_path": facts.get("heading_path") or None,
        "page": facts.get("page"),
        "start": facts.get("start"),
        "end": facts.get("end"),
        "passage": result.content,
        "id": result.id,
        "metadata": dict(facts),
    }


# --- for people ----------------------------------------------------------------------------------


def _draw(session: Session, results: Sequence[Mapping[str, Any]], query: str) -> None:
    import sys

    from rich.console import Console
    from rich.text import Text

    asked = words_of(query)
    width = None if sys.stdout.isatty() else 100
    color = session.output.color
    console = Console(highlight=False, color_system="auto" if color else None, width=width)
    for result in results:
        head = Text(f"{result['rank']}. ", style="bold")
        head.append(_place(result), style="bold cyan")
        head.append(f"  {result['score']:.3f}", style="dim")
        console.print(head, soft_wrap=True)
        if result["heading_path"]:
            console.print(Text(f"   {result['heading_path']}", style="italic"), soft_wrap=True)
        passage = marked(excerpt(result["passage"] or "", asked, _PASSAGE), asked)
        for line in passage.wrap(console, max(20, console.width - 3)):
            console.print(Text("   ").append_text(line), soft_wrap=True)
        console.print()


def _place(result: Mapping[str, Any]) -> str:
    source = str(result["source"] or result["id"])
    if Path(source).is_absolute():
        source = shown_path(source)
    return f"{source}, page {result['page']}" if result["page"] is not None else source


def words_of(query: str) -> list[str]:
    """The words of a question that a passage may have; all of them when they are all common."""
    found = [word.casefold() for word in _WORD.findall(query)]
    return [word for word in found if not _FILLERS.match(word)] or found


def is_meant(word: str, asked: Sequence[str]) -> bool:
    """True for a word of the question in any of its forms: run, runs, running."""
    word = word.casefold()
    return any(_stem(word) == _stem(one) for one in asked)


def excerpt(text: str, asked: Sequence[str], size: int) -> str:
    """The part of a passage with the most words of the question, in one line."""
    text = " ".join(text.split())
    if len(text) <= size:
        return text
    places = [found.start() for found in _WORD.finditer(text) if is_meant(found[0], asked)]
    best, most = 0, 0
    for place in places:
        within = sum(place <= other < place + size * 3 // 4 for other in places)
        if within > most:
            best, most = max(0, place - size // 8), within
    best = min(best, len(text) - size)
    # Whole words at both ends.
    start = text.find(" ", best) + 1 if best else 0
    end = text.rfind(" ", start, start + size) if start + size < len(text) else len(text)
    end = end if end > start else min(start + size, len(text))
    return ("… " if start else "") + text[start:end] + (" …" if end < len(text) else "")


def marked(text: str, asked: Sequence[str]) -> Text:
    """The text with the words of the question in bold."""
    from rich.text import Text

    made = Text(text)
    for found in _WORD.finditer(text):
        if is_meant(found[0], asked):
            made.stylize("bold yellow", found.start(), found.end())
    return made


def _stem(word: str) -> str:
    """Rough on purpose: it only decides what is shown in bold."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word
