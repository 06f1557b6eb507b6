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
    """Settings of the embedding model, its cache and its queue."""

    provider: Literal["wordllama", "onnx", "openai", "hashing"] = field(
        default="wordllama",
        validator=in_(PROVIDERS),
        metadata=doc(
            "wordllama: the model in its wheel; onnx: a local model (an extra); openai: any "
            "OpenAI-compatible endpoint; hashing: for tests only."
        ),
    )
    model: str = field(
        default="",
        metadata=doc("openai: the model name. onnx: the model folder. Others have a fixed model."),
    )
    dimension: int | None = field(
        default=None,
        validator=_COUNT,
        metadata=doc(
            "Length of the vectors. openai: required for models without a known dimension. "
            "hashing: default 256. Others have a fixed dimension."
        ),
    )
    batch_size: int = field(
        default=32,
        validator=ge(1),
        metadata=doc("Texts per forward pass or request. onnx is fastest with 8 to 32."),
    )

    url: str = field(
        default="https://api.openai.com/v1",
        validator=min_len(1),
        metadata=doc("openai: base URL of the endpoint, without /embeddings."),
    )
    api_key: SecretStr = field(
        factory=lambda: SecretStr(""), metadata=secret("openai: API key, if required.")
    )
    send_dimension: bool = field(
        default=False,
        metadata=doc("openai: send `dimension` in requests; few models support it."),
    )
    max_batch_tokens: int = field(
        default=100_000,
        validator=ge(1),
        metadata=doc("openai: maximum tokens per request, estimated by bytes."),
    )
    requests_per_minute: float | None = field(
        default=None,
        validator=_POSITIVE,
        metadata=doc("openai: rate limit of requests; no value: no limit."),
    )
    tokens_per_minute: float | None = field(
        default=None,
        validator=_POSITIVE,
        metadata=doc("openai: rate limit of estimated tokens; no value: no limit."),
    )
    connections: int = field(
        default=4, validator=ge(1), metadata=doc("openai: concurrent requests.")
    )
    timeout: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("openai: timeout of a request, in seconds."),
    )
    connect_timeout: float = field(
        default=5.0, validator=gt(0), metadata=doc("openai: timeout of connecting, in seconds.")
    )
    total_timeout: float = field(
        default=300.0,
        validator=gt(0),
        metadata=doc("openai: timeout of a batch including retries, in seconds."),
    )
    max_retries: int = field(
        default=5, validator=ge(0), metadata=doc("openai: maximum number of retries.")
    )
    max_wait: float = field(
        default=60.0,
        validator=ge(0),
        metadata=doc("openai: maximum Retry-After, in seconds; above it the call fails."),
    )

    graph_cache: str = field(
        default="",
        metadata=doc("onnx: folder of converted graphs; empty: the cache folder of the user."),
    )
    threads: int | None = field(
        default=None,
        validator=_COUNT,
        metadata=doc("onnx: threads per forward pass; no value: one per core."),
    )

    cache_entries: int = field(
        default=10_000,
        validator=ge(1),
        metadata=doc("Maximum cached vectors in the process, if no cache is bound."),
    )
    cache_ttl: float | None = field(
        default=30 * 24 * 3600.0,
        validator=_POSITIVE,
        metadata=doc("Time to live of cached vectors, in seconds; no value: no limit."),
    )
    max_queue_depth: int | None = field(
        default=1000,
        validator=_COUNT,
        metadata=doc(
            "Maximum pending jobs before embed_batch waits or raises; no value: no limit."
        ),
    )
    when_full: Literal["wait", "refuse"] = field(
        default="wait",
        validator=in_(("wait", "refuse")),
        metadata=doc("Behaviour of embed_batch when the queue is full."),
    )
    queue_wait: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Timeout of embed_batch while the queue is full, in seconds."),
    )
