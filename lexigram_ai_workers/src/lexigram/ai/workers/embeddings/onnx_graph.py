"""Convert the weights of a BERT encoder to an ONNX graph, and cache it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from lexigram.ai.workers.embeddings.errors import EmbeddingLibraryError, EmbeddingModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VERSION = 1  # part of the file name: increase it when the graph changes

_OPSET = 20  # the first with Gelu
_IR_VERSION = 9  # goes with that opset
_MAX_BYTES = 2**31 - 2**20  # bytes; a protobuf message cannot be larger than 2 GiB


def ensure_graph(weights: Path, settings: Mapping[str, Any], identity: str, folder: Path) -> Path:
    """Return the path of the graph in ``folder``; it is created if it does not exist.

    The file is written under a temporary name and renamed, so that it is always complete.
    """
    path = folder / f"bert-{identity}-v{VERSION}.onnx"
    if path.exists():
        return path
    data = bert_graph(weights, settings)
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix=path.stem, suffix=".part", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    return path


def bert_graph(weights: Path, settings: Mapping[str, Any]) -> bytes:
    """Build the encoder ``input_ids, attention_mask -> last_hidden_state``; token type 0."""
    _check_settings(weights, settings)
    try:
        from onnx import TensorProto
        from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]
    except ImportError as error:
        raise library_missing(error) from error
    if weights.stat().st_size > _MAX_BYTES:
        raise EmbeddingModelError(
            f"{weights} is too large for one ONNX graph",
            hint="export the model to ONNX and put model.onnx into the folder",
        )
    graph = _Graph(load_file(weights))
    hidden = _add_embeddings(graph, settings)
    mask = graph.op("Cast", "attention_mask", to=TensorProto.INT32)
    for number in range(int(settings["num_hidden_layers"])):
        hidden = _add_layer(graph, f"encoder.layer.{number}.", hidden, mask, settings)
    return graph.model(hidden, int(settings["hidden_size"]))


def library_missing(error: ImportError) -> EmbeddingLibraryError:
    """Create the error for a missing library of the extra ``onnx``."""
    return EmbeddingLibraryError(
        f"local models require a library that is not installed: {error}",
        hint='run pip install "lexigram-ai-workers[onnx]"',
        cause=error,
    )


def _check_settings(weights: Path, settings: Mapping[str, Any]) -> None:
    wanted = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
    }
    for key, value in wanted.items():
        found = settings.get(key, value)
        if found != value:
            raise EmbeddingModelError(
                f"unsupported {key} {found!r} of {weights}: only {value!r} can be converted",
                details={"folder": str(weights.parent), key: found},
                hint="export the model to ONNX and put model.onnx into the folder",
            )


def _add_embeddings(graph: _Graph, settings: Mapping[str, Any]) -> str:
    import numpy as np

    words = graph.op("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    # All tokens have type 0, so its embedding is added to the position embeddings here.
    positions = graph.array("embeddings.position_embeddings.weight")
    table = graph.constant(
        "positions", positions + graph.array("embeddings.token_type_embeddings.weight")[0]
    )
    length = graph.op("Shape", "input_ids", start=1, end=2)
    zero = graph.constant("zero", np.array([0], dtype=np.int64))
    used = graph.op("Slice", table, zero, length, zero)
    return _add_norm(graph, graph.op("Add", words, used), "embeddings.LayerNorm", settings)


def _add_layer(
    graph: _Graph, prefix: str, hidden: str, mask: str, settings: Mapping[str, Any]
) -> str:
    heads = int(settings["num_attention_heads"])
    three = [
        _add_dense(graph, hidden, f"{prefix}attention.self.{part}")
        for part in ("query", "key", "value")
    ]
    attention = graph.op(
        "MultiHeadAttention", *three, "", mask, domain="com.microsoft", num_heads=heads
    )
    attention = graph.op(
        "Add", _add_dense(graph, attention, f"{prefix}attention.output.dense"), hidden
    )
    attention = _add_norm(graph, attention, f"{prefix}attention.output.LayerNorm", settings)
    wide = graph.op("Gelu", _add_dense(graph, attention, f"{prefix}intermediate.dense"))
    model = graph.op("Add", _add_dense(graph, wide, f"{prefix}output.dense"), attention)
    return _add_norm(graph, model, f"{prefix}output.LayerNorm", settings)


def _add_dense(graph: _Graph, hidden: str, name: str) -> str:
    transposed = graph.constant(f"{name}.turned", graph.array(f"{name}.weight").T)
    return graph.op("Add", graph.op("MatMul", hidden, transposed), graph.weight(f"{name}.bias"))


def _add_norm(graph: _Graph, hidden: str, name: str, settings: Mapping[str, Any]) -> str:
    epsilon = float(settings.get("layer_norm_eps", 1e-12))
    scale, bias = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
    return graph.op("LayerNormalization", hidden, scale, bias, axis=-1, epsilon=epsilon)


class _Graph:
    """Collects nodes and constants; ``op`` returns the name of the result of a node."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._arrays = {name.removeprefix("bert."): array for name, array in arrays.items()}
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def array(self, name: str) -> NDArray[np.float32]:
        import numpy as np

        if name not in self._arrays:
            raise EmbeddingModelError(
                f"the weights have no {name!r}",
                hint="export the model to ONNX: the weights are not of a BERT encoder",
            )
        return self._arrays[name].astype(np.float32)

    def weight(self, name: str) -> str:
        return self.constant(name, self.array(name))

    def constant(self, name: str, array: NDArray[Any]) -> str:
        import numpy as np
        from onnx import numpy_helper

        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        result = f"{kind}_{len(self._nodes)}"
        node = helper.make_node(kind, list(inputs), [result], domain=domain, **attributes)
        self._nodes.append(node)
        return result

    def model(self, result: str, width: int) -> bytes:
        from onnx import TensorProto, helper

        self._nodes.append(helper.make_node("Identity", [result], ["last_hidden_state"]))
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info(
            "last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", width]
        )
        graph = helper.make_graph(
            self._nodes, "bert", inputs, [output], list(self._constants.values())
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = _IR_VERSION
        data: bytes = model.SerializeToString()
        return data
