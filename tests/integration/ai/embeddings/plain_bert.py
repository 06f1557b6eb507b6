"""BERT as the paper has it, in numpy, one text at a time: what a graph is compared with."""

import json
from math import erf

import numpy as np
from safetensors.numpy import load_file


def vector(folder, ids):
    """Mean over the tokens of the last layer, made to length 1."""
    config = json.loads((folder / "config.json").read_text())
    arrays = load_file(folder / "model.safetensors")
    w = {name.removeprefix("bert."): array.astype(np.float64) for name, array in arrays.items()}
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(x.var(-1, keepdims=True) + eps)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(config["num_hidden_layers"]):
        base = f"encoder.layer.{number}."
        parts = [dense(x, f"{base}attention.self.{n}") for n in ("query", "key", "value")]
        q, k, v = (p.reshape(len(ids), heads, -1).transpose(1, 0, 2) for p in parts)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (weights / weights.sum(-1, keepdims=True)) @ v
        seen = seen.transpose(1, 0, 2).reshape(len(ids), -1)
        x = norm(
            dense(seen, f"{base}attention.output.dense") + x, f"{base}attention.output.LayerNorm"
        )
        wide = dense(x, f"{base}intermediate.dense")
        wide = wide * (1 + np.vectorize(erf)(wide / np.sqrt(2))) / 2
        x = norm(dense(wide, f"{base}output.dense") + x, f"{base}output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)
