"""Sentence-transformer models in a local folder, run by onnxruntime."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import anyio
from attrs import frozen

from lexigram.ai.workers.embeddings.batching import embed_in_thread
from lexigram.ai.workers.embeddings.checks import check_texts
from lexigram.ai.workers.embeddings.errors import EmbeddingModelError
from lexigram.ai.workers.embeddings.onnx_graph import ensure_graph, library_missing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_SIZE = 16
GRAPH_CACHE = Path("~/.cache/lexigram/onnx")  # one graph per model, as large as its weights

_GRAPHS = ("model.onnx", "onnx/model.onnx")
_WEIGHTS = "model.safetensors"
# Batches sorted by length together: more reduce padding but delay cancellation.
_BATCHES_PER_SORT = 4
_MAX_CREDIBLE_TOKENS = 10**6  # tokenizers without a limit have 1e30
_BLOCK = 2**20


class OnnxEmbeddings:
    """Implements EmbeddingProviderProtocol with a model folder of sentence-transformers.

    The folder has ``tokenizer.json``, ``config.json`` and the model: ``model.onnx`` (or
    ``onnx/model.onnx``), or the ``model.safetensors`` of a BERT encoder, which is converted to a
    graph on first use and cached in ``graph_cache``. A vector is the mean over the tokens (or the
    first token, if configured in ``1_Pooling``), normalized to length 1. Texts are truncated to
    ``max_tokens``.

    The constructor reads and hashes the model for the ``model_id``. In async code use
    ``await OnnxEmbeddings.open(folder)``, which does it in a thread.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        batch_size: int = BATCH_SIZE,
        graph_cache: str | Path | None = None,
        threads: int | None = None,
    ) -> None:
        self._model = model = _Folder.read(Path(folder).expanduser())
        self.model_id = f"onnx-{model.path.name}-{model.identity[:12]}"
        self.dimension = model.dimension
        # maximum tokens of a text, including special tokens
        self.max_tokens = model.max_tokens
        self.batch_size = batch_size
        self._graph_cache = Path(graph_cache or GRAPH_CACHE).expanduser()
        self._threads = threads
        # One forward pass at a time: it uses all cores.
        self._limiter = anyio.CapacityLimiter(1)
        self._loading = Lock()
        self._ready: tuple[Any, Any] | None = None

    @classmethod
    async def open(cls, folder: str | Path, **settings: Any) -> OnnxEmbeddings:
        """Call the constructor in a thread."""
        return await anyio.to_thread.run_sync(lambda: cls(folder, **settings))

    async def embed_texts(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector per text."""
        at_a_time = self.batch_size * _BATCHES_PER_SORT
        return await embed_in_thread(check_texts(texts), at_a_time, self._embed, self._limiter)

    async def count_tokens(self, texts: list[str]) -> list[int]:
        """Count the tokens of each text, without special tokens and truncation."""
        return await anyio.to_thread.run_sync(self._count, texts, limiter=self._limiter)

    def _count(self, texts: Sequence[str]) -> list[int]:
        vocabulary, _ = self._get_model()
        encoded = vocabulary.encode_batch(list(texts), add_special_tokens=False)
        return [len(item.ids) for item in encoded]

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        vocabulary, session = self._get_model()
        encoded = vocabulary.encode_batch(list(texts), add_special_tokens=True)
        rows = [self._cut(item) for item in encoded]
        # Batches of similar lengths reduce padding.
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        vectors: list[list[float]] = [[]] * len(rows)
        for start in range(0, len(order), self.batch_size):
            numbers = order[start : start + self.batch_size]
            normalized = self._forward(session, [rows[number] for number in numbers])
            for number, vector in zip(numbers, normalized.tolist(), strict=True):
                vectors[number] = vector
        return vectors

    def _cut(self, encoded: Any) -> list[int]:
        """Truncate the tokens, but keep the final special token."""
        ids: list[int] = encoded.ids
        if len(ids) <= self.max_tokens:
            return ids
        if encoded.special_tokens_mask[-1]:
            return [*ids[: self.max_tokens - 1], ids[-1]]
        return ids[: self.max_tokens]

    def _forward(self, session: Any, rows: list[list[int]]) -> NDArray[np.float32]:
        import numpy as np

        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self._model.pad, dtype=np.int64)
        mask = np.zeros((len(rows), longest), dtype=np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {item.name for item in session.get_inputs()}
        if unknown := wanted - given.keys():
            raise EmbeddingModelError(
                f"{self._model.path} requires the input {', '.join(sorted(unknown))}",
                hint="export it as a plain encoder: input_ids, attention_mask, token_type_ids",
            )
        [hidden, *_] = session.run(None, {name: given[name] for name in wanted})
        pooled = _pool(hidden, mask, self._model.pooling)
        lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
        normalized: NDArray[np.float32] = pooled / np.maximum(lengths, 1e-12)
        if normalized.shape[1] != self.dimension:
            raise EmbeddingModelError(
                f"{self._model.path} returns vectors of length {normalized.shape[1]}, but its config.json has "
                f"{self.dimension}",
                hint="export the model again: graph and config.json do not match",
            )
        return normalized

    def _get_model(self) -> tuple[Any, Any]:
        with self._loading:
            if self._ready is None:
                self._ready = self._load()
            return self._ready

    def _load(self) -> tuple[Any, Any]:
        try:
            onnxruntime = import_module("onnxruntime")  # it has no types
            from tokenizers import Tokenizer
        except ImportError as error:
            raise library_missing(error) from error
        model = self._model
        graph = model.weights
        if graph.suffix == ".safetensors":
            graph = ensure_graph(graph, model.settings, model.identity[:24], self._graph_cache)
        options = onnxruntime.SessionOptions()
        if self._threads is not None:
            options.intra_op_num_threads = self._threads
        try:
            vocabulary = Tokenizer.from_file(str(model.path / "tokenizer.json"))
            session = onnxruntime.InferenceSession(
                str(graph), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both libraries raise Exception itself
            raise EmbeddingModelError(
                f"cannot load the model in {model.path}: {error}",
                details={"folder": str(model.path), "graph": str(graph)},
                hint="download the folder again: a file is damaged or of another model",
                cause=error,
            ) from error
        # The truncation and padding settings in these files are often wrong (MiniLM: 128), so
        # they are disabled.
        vocabulary.no_padding()
        vocabulary.no_truncation()
        return vocabulary, session


@frozen(kw_only=True)
class _Folder:
    """The metadata of a model folder."""

    path: Path
    # the graph, or the weights to convert
    weights: Path
    settings: Mapping[str, Any]
    # sha256 of model and vocabulary
    identity: str
    dimension: int
    max_tokens: int
    pooling: str
    pad: int

    @classmethod
    def read(cls, path: Path) -> _Folder:
        settings = _read_json(path, "config.json")
        weights = next(
            (path / name for name in (*_GRAPHS, _WEIGHTS) if (path / name).is_file()), None
        )
        if settings is None or weights is None or not (path / "tokenizer.json").is_file():
            raise EmbeddingModelError(
                f"{path} is not a folder of a sentence model",
                details={"folder": str(path)},
                hint="add config.json, tokenizer.json and model.onnx, or model.safetensors of a "
                "BERT encoder",
            )
        pooling = _pooling(path)
        return cls(
            path=path.resolve(),
            weights=weights,
            settings=settings,
            identity=_identity([weights, path / "tokenizer.json"], pooling),
            dimension=_read_positive_int(path, settings, "hidden_size"),
            max_tokens=_max_tokens(path, settings),
            pooling=pooling,
            pad=int(settings.get("pad_token_id") or 0),
        )


def _pool(
    hidden: NDArray[np.float32], mask: NDArray[np.int64], pooling: str
) -> NDArray[np.float32]:
    if hidden.ndim == 2:  # the graph includes pooling
        return hidden
    if pooling == "cls":
        first: NDArray[np.float32] = hidden[:, 0]
        return first
    weights = mask[:, :, None].astype(hidden.dtype)
    mean: NDArray[np.float32] = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    return mean


def _pooling(path: Path) -> str:
    pooling_config = _read_json(path, "1_Pooling/config.json")
    if pooling_config is None:
        return "mean"
    modes = [
        key for key, value in pooling_config.items() if key.startswith("pooling_mode_") and value
    ]
    names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(modes) != 1 or modes[0] not in names:
        raise EmbeddingModelError(
            f"unsupported pooling of {path}: {', '.join(modes) or 'none'}",
            hint="use a model with mean or cls pooling",
        )
    return names[modes[0]]


def _max_tokens(path: Path, settings: Mapping[str, Any]) -> int:
    """Return the smallest token limit in the files."""
    positions = _read_positive_int(path, settings, "max_position_embeddings")
    if settings.get("model_type") in ("roberta", "xlm-roberta", "mpnet", "camembert"):
        positions -= (
            int(settings.get("pad_token_id") or 0) + 1
        )  # their positions start after the padding id
    sentence = (_read_json(path, "sentence_bert_config.json") or {}).get("max_seq_length")
    vocabulary = (_read_json(path, "tokenizer_config.json") or {}).get("model_max_length")
    limits = [item for item in (sentence, vocabulary) if isinstance(item, int)]
    return min([positions, *(item for item in limits if 2 < item < _MAX_CREDIBLE_TOKENS)])


def _read_positive_int(path: Path, settings: Mapping[str, Any], key: str) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or value < 1:
        raise EmbeddingModelError(
            f"{path / 'config.json'} has an invalid {key}: {value!r}",
            hint="use the config.json of an encoder",
        )
    return value


def _read_json(path: Path, name: str) -> dict[str, Any] | None:
    """Read a JSON object; None if the file does not exist."""
    try:
        found: Any = json.loads((path / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EmbeddingModelError(f"cannot read {path / name}: {error}", cause=error) from error
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _identity(files: Sequence[Path], pooling: str) -> str:
    digest = hashlib.sha256(pooling.encode())
    for path in files:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()
