"""A BERT encoder of a few kilobytes with random weights, written as sentence-transformers does."""

import json

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

HIDDEN, LAYERS, HEADS, WIDE, POSITIONS = 16, 2, 4, 32, 64


def write(folder, *, seed=7, prefix="", **settings):
    """The folder, complete; ``settings`` replace those of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(chr, range(33, 127))]
    vocabulary += [f"##{chr(code)}" for code in range(33, 127)]
    ids = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=64))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # Settings that must not be trusted: they would cut every text to 4 tokens and pad it to 50.
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": WIDE,
        "max_position_embeddings": POSITIONS,
        "layer_norm_eps": 1e-12,
        "vocab_size": len(vocabulary),
        **settings,
    }
    (folder / "config.json").write_text(json.dumps(config))
    arrays = {f"{prefix}{name}": array for name, array in weights(len(vocabulary), seed).items()}
    save_file(arrays, folder / "model.safetensors")
    return folder


def weights(words, seed):
    random = np.random.default_rng(seed)

    def some(*shape):
        return random.normal(0, 0.5, shape).astype(np.float32)

    made = {
        "embeddings.word_embeddings.weight": some(words, HIDDEN),
        "embeddings.position_embeddings.weight": some(POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": some(2, HIDDEN),
        "embeddings.LayerNorm.weight": 1 + some(HIDDEN) / 10,
        "embeddings.LayerNorm.bias": some(HIDDEN),
    }
    for number in range(LAYERS):
        base = f"encoder.layer.{number}."
        shapes = {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (WIDE, HIDDEN),
            "output.dense": (HIDDEN, WIDE),
        }
        for name, shape in shapes.items():
            made[f"{base}{name}.weight"] = some(*shape)
            made[f"{base}{name}.bias"] = some(shape[0])
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            made[f"{base}{name}.weight"] = 1 + some(HIDDEN) / 10
            made[f"{base}{name}.bias"] = some(HIDDEN)
    return made
