"""The settings of embeddings: part ``embeddings`` of section ``ai_workers``."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen
from attrs.validators import ge, gt, in_, min_len, optional

from lexigram.config import SecretStr, doc, secret

# Any: mypy takes the type of a field from its default, which is not None.
_COUNT: Any = optional(ge(1))
_POSITIVE: Any = optional(gt(0))

PROVIDERS = ("wordllama", "onnx", "openai", "hashing")


@frozen(kw_only=True)
class EmbeddingConfig:
    """Which model turns texts into vectors, and how it and its queue are used."""

    provider: Literal["wordllama", "onnx", "openai", "hashing"] = field(
        default="wordllama",
        validator=in_(PROVIDERS),
        metadata=doc(
            "wordllama: inside its wheel; onnx: a local folder (an extra); openai: any endpoint "
            "of that form; hashing: for tests only, it knows no meaning."
        ),
    )
    model: str = field(
        default="",
        metadata=doc("openai: the name of the model. onnx: its folder. Others have one model."),
    )
    dimension: int | None = field(
        default=None,
        validator=_COUNT,
        metadata=doc(
            "Length of the vectors. openai: needed for a model that is not known here. "
            "hashing: 256 when not given. The others know theirs."
        ),
    )
    batch_size: int = field(
        default=32,
        validator=ge(1),
        metadata=doc("Texts at a time: one forward pass, one request. onnx is best from 8 to 32."),
    )

    url: str = field(
        default="https://api.openai.com/v1",
        validator=min_len(1),
        metadata=doc("openai: where the endpoint is, without /embeddings."),
    )
    api_key: SecretStr = field(
        factory=lambda: SecretStr(""), metadata=secret("openai: the key, when it wants one.")
    )
    send_dimension: bool = field(
        default=False,
        metadata=doc("openai: ask for vectors of the given dimension; few models can."),
    )
    max_batch_tokens: int = field(
        default=100_000,
        validator=ge(1),
        metadata=doc("openai: tokens of one request, estimated from the bytes of the texts."),
    )
    requests_per_minute: float | None = field(
        default=None,
        validator=_POSITIVE,
        metadata=doc("openai: never more requests than this; no value: as the endpoint lets us."),
    )
    tokens_per_minute: float | None = field(
        default=None,
        validator=_POSITIVE,
        metadata=doc("openai: never more estimated tokens than this; no value: no limit."),
    )
    connections: int = field(
        default=4, validator=ge(1), metadata=doc("openai: requests at the same time.")
    )
    timeout: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("openai: seconds for one request, from the first byte to the last."),
    )
    connect_timeout: float = field(
        default=5.0, validator=gt(0), metadata=doc("openai: seconds to get a connection.")
    )
    total_timeout: float = field(
        default=300.0,
        validator=gt(0),
        metadata=doc("openai: seconds for one batch with all its tries and waits."),
    )
    max_retries: int = field(
        default=5, validator=ge(0), metadata=doc("openai: tries after the first one.")
    )
    max_wait: float = field(
        default=60.0,
        validator=ge(0),
        metadata=doc("openai: longest Retry-After that is waited for; above, the call fails."),
    )

    graph_cache: str = field(
        default="",
        metadata=doc("onnx: folder for graphs made from weights; empty: the user's cache folder."),
    )
    threads: int | None = field(
        default=None,
        validator=_COUNT,
        metadata=doc("onnx: threads of one forward pass; no value: one per core."),
    )

    cache_entries: int = field(
        default=10_000,
        validator=ge(1),
        metadata=doc("Vectors remembered in the process, where no cache is bound."),
    )
    cache_ttl: float | None = field(
        default=30 * 24 * 3600.0,
        validator=_POSITIVE,
        metadata=doc("Seconds a vector is remembered; no value: while there is room."),
    )
    max_queue_depth: int | None = field(
        default=1000,
        validator=_COUNT,
        metadata=doc("Waiting jobs above which embed_batch waits or refuses; no value: no limit."),
    )
    when_full: Literal["wait", "refuse"] = field(
        default="wait",
        validator=in_(("wait", "refuse")),
        metadata=doc("What embed_batch does when so many jobs wait."),
    )
    queue_wait: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Seconds embed_batch waits for room before it refuses."),
    )
