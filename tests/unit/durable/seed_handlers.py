"""Stand-ins for the steps that the seed's definitions name."""

from attrs import field, frozen
from attrs.validators import gt

from lexigram.contracts.workflow.durable import step_params


@frozen(kw_only=True)
class Parse:
    format: str = "markdown"
    ocr_enabled: bool = False


@frozen(kw_only=True)
class Chunk:
    chunk_size: int = field(default=256, validator=gt(0))
    chunk_overlap: int = 0
    separator: str = "\n"


@frozen(kw_only=True)
class Store:
    data_dir: str = "default_db"
    collection_name: str | None = None


async def validate_document(doc) -> dict:
    return {}


@step_params(Parse)
async def parse_document(doc, step_params, ctx) -> dict:
    return {}


split_parse_document = parse_document


@step_params(Chunk)
async def chunk_document(doc, step_params, ctx) -> dict:
    return {}


async def embed_document(doc, model: str = "small", batch_size: int = 100) -> dict:
    return {}


@step_params(Store)
async def save_to_rag(doc, step_params, ctx) -> dict:
    return {}


async def log_event(message: str) -> dict:
    return {}


async def run_end() -> dict:
    return {}


NOT_CALLABLE = 3
