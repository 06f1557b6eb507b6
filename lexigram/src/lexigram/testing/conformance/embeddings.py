"""The conformance suite of EmbeddingProviderProtocol."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import isfinite, sqrt
from typing import Any

import anyio
import pytest

from lexigram.contracts.ai.protocols import EmbeddingProviderProtocol
from lexigram.contracts.data.vector.errors import EmbeddingError
from lexigram.testing.conformance.suite import ConformanceSuite

NEARLY = 1e-3  # what vectors of one text may differ by: batches are computed in other orders


class EmbeddingCapability(StrEnum):
    """What an embedding provider can do."""

    VECTORS = "vectors"  # one per text, in order
    UNIT_LENGTH = "unit_length"  # vectors of length 1
    LONG_TEXTS = "long_texts"  # texts of any length have a vector, if only by their beginning
    MEANING = "meaning"  # texts of one meaning are nearer than those of two


class EmbeddingSpec(ConformanceSuite):
    """What the specs of embeddings share."""

    contract = EmbeddingProviderProtocol
    core = frozenset({EmbeddingCapability.VECTORS})


class VectorsSpec(EmbeddingSpec, capability=EmbeddingCapability.VECTORS):
    """embed_texts, model_id, dimension."""

    async def test_the_model_has_a_name_and_a_length(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        assert subject.model_id == subject.model_id.strip() != ""
        assert subject.dimension >= 1

    async def test_a_vector_is_a_list_of_finite_floats_of_that_length(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        [vector] = await subject.embed_texts(["a cat on the roof"])
        assert isinstance(vector, list)
        assert len(vector) == subject.dimension
        assert {type(value) for value in vector} == {float}
        assert all(map(isfinite, vector))
        assert any(vector)

    async def test_no_texts_give_no_vectors(self, subject: EmbeddingProviderProtocol) -> None:
        assert await subject.embed_texts([]) == []

    async def test_each_text_of_many_has_its_own_vector_in_order(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        texts = [f"{_WORDS[n % 7]} {_WORDS[n % 5]} number {n} " * (1 + n % 4) for n in range(70)]
        together = await subject.embed_texts(texts)
        assert len(together) == len(texts)
        for number in (0, 1, 33, 69):
            [alone] = await subject.embed_texts([texts[number]])
            assert _distance(alone, together[number]) < NEARLY

    async def test_the_same_text_gives_nearly_the_same_vector(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        [first] = await subject.embed_texts(["the same words again"])
        second, third = await subject.embed_texts(["the same words again"] * 2)
        assert max(_distance(first, second), _distance(first, third)) < NEARLY

    async def test_different_texts_give_different_vectors(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        one, other = await subject.embed_texts(["a cat on the roof", "interest rates rose today"])
        assert _distance(one, other) > NEARLY

    async def test_calls_at_the_same_time_do_not_mix(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        texts = {word: [f"{word} {n}" for n in range(5)] for word in _WORDS}
        answers: dict[str, list[list[float]]] = {}

        async def ask(word: str) -> None:
            answers[word] = await subject.embed_texts(texts[word])

        async with anyio.create_task_group() as tasks:
            for word in texts:
                tasks.start_soon(ask, word)
        for word, vectors in answers.items():
            again = await subject.embed_texts(texts[word])
            assert all(_distance(a, b) < NEARLY for a, b in zip(vectors, again, strict=True)), word

    @pytest.mark.parametrize("text", ["", "   ", "\n\t"])
    async def test_a_text_without_a_word_is_refused_with_all_the_others(
        self, subject: EmbeddingProviderProtocol, text: str
    ) -> None:
        with pytest.raises(EmbeddingError):
            await subject.embed_texts(["a cat on the roof", text])

    async def test_what_is_no_text_is_refused(self, subject: EmbeddingProviderProtocol) -> None:
        wrong: list[Any] = ["a cat on the roof", None]
        with pytest.raises(EmbeddingError):
            await subject.embed_texts(wrong)

    async def test_characters_of_any_script_have_a_vector(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        texts = ["дом у моря", "海辺の家", "🙂🏠", "café naïve", "x = {1: [2]}", "\u200b."]
        assert len(await subject.embed_texts(texts)) == len(texts)

    async def test_a_cancelled_call_leaves_it_usable(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await subject.embed_texts(["a cat on the roof"] * 10)
        assert scope.cancelled_caught
        assert len(await subject.embed_texts(["a cat on the roof"])) == 1


class UnitLengthSpec(EmbeddingSpec, capability=EmbeddingCapability.UNIT_LENGTH):
    """So that dot product and cosine are one."""

    async def test_vectors_have_length_1(self, subject: EmbeddingProviderProtocol) -> None:
        for vector in await subject.embed_texts(["a", "a cat on the roof", "rates " * 300]):
            assert abs(sqrt(_dot(vector, vector)) - 1.0) < NEARLY


class LongTextsSpec(EmbeddingSpec, capability=EmbeddingCapability.LONG_TEXTS):
    """Texts beyond what the model looks at."""

    async def test_a_long_text_has_a_vector_also_beside_a_short_one(
        self, subject: EmbeddingProviderProtocol
    ) -> None:
        short = "a cat on the roof"
        vectors = await subject.embed_texts([short, f"{short} and then " * 2000])
        [alone] = await subject.embed_texts([short])
        assert _distance(vectors[0], alone) < NEARLY
        assert len(vectors[1]) == subject.dimension


class MeaningSpec(EmbeddingSpec, capability=EmbeddingCapability.MEANING):
    """That vectors are good for something."""

    @pytest.mark.parametrize(
        ("question", "right", "wrong"),
        [
            ("how do I bake bread?", "a recipe for a loaf", "the stock market fell"),
            ("repair a bicycle", "fixing a flat tyre of a bike", "the history of Rome"),
            ("weather in winter", "snow and cold days", "how to train a dog"),
        ],
    )
    async def test_the_right_passage_is_nearer(
        self, subject: EmbeddingProviderProtocol, question: str, right: str, wrong: str
    ) -> None:
        asked, good, bad = await subject.embed_texts([question, right, wrong])
        assert _cosine(asked, good) > _cosine(asked, bad)


class EmbeddingConformance(VectorsSpec, UnitLengthSpec, LongTextsSpec, MeaningSpec):
    """The whole suite: give it to ``conformance_suite`` with your provider."""


_WORDS = ("river", "engine", "music", "garden", "planet", "window", "paper")


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return _dot(one, other) / sqrt(_dot(one, one) * _dot(other, other))


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
