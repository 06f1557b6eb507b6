"""Types, progress and cache of batch embedding."""

import os
import subprocess
import sys

import pytest

from lexigram.ai.workers.batch_embedding import (
    BatchEmbeddingJob,
    BatchEmbeddingProgress,
    BatchEmbeddingResult,
    EmbeddingCache,
    EmbeddingStatus,
    ProgressTracker,
    embed_with_cache,
)
from lexigram.ai.workers.embeddings import (
    EmbeddingMismatchError,
    HashingEmbeddings,
    ModelsMixedError,
    NamedEmbeddings,
)
from lexigram.cache import MemoryCache, Values
from lexigram.testing.fakes import FakeCache

pytestmark = pytest.mark.anyio


class Counting:
    """Counts the texts it is asked for; ``gives`` changes the answer."""

    model_id, dimension = "counting", 4

    def __init__(self, gives=lambda vectors: vectors):
        self.asked = []
        self.gives = gives

    async def embed_texts(self, texts):
        self.asked += texts
        return self.gives([[float(len(text)), 0.5, 0.25, 1.0] for text in texts])


# --- values ---------------------------------------------------------------------------------------


def test_progress_sets_texts_and_adds_hits_and_an_error_means_failed():
    progress = BatchEmbeddingProgress("j", EmbeddingStatus.PENDING, 10)
    progress.update(EmbeddingStatus.PROCESSING, texts_processed=4, cache_hits=1, cache_misses=3)
    progress.update(texts_processed=6, cache_hits=2)
    assert (progress.texts_processed, progress.cache_hits, progress.cache_misses) == (6, 3, 3)
    assert (progress.progress_percent, progress.cache_hit_rate) == (60.0, 50.0)
    progress.update(EmbeddingStatus.COMPLETED, error="broken")
    assert progress.status is EmbeddingStatus.FAILED
    assert progress.to_dict()["error"] == "broken"


def test_the_progress_of_an_empty_batch_is_a_number():
    progress = BatchEmbeddingProgress("j", EmbeddingStatus.PENDING)
    assert (progress.progress_percent, progress.cache_hit_rate) == (0.0, 0.0)


def test_results_have_both_forms():
    good = BatchEmbeddingResult.success_result("j", 3, 1, 0.5, {"a": 1})
    assert good.to_dict() == {
        "job_id": "j",
        "success": True,
        "embeddings_generated": 3,
        "cache_hits": 1,
        "duration_seconds": 0.5,
        "error": None,
        "metadata": {"a": 1},
    }
    bad = BatchEmbeddingResult.failure_result("j", "broken", 0.1)
    assert (bad.success, bad.error, bad.embeddings_generated) == (False, "broken", 0)


def test_a_job_is_plain_data_and_the_old_default_model_is_no_model():
    class Chunk:
        text, metadata, score = "b", {"page": 1}, None

    job = BatchEmbeddingJob(
        ["a", Chunk(), {"text": "c", "id": 7}], "docs", "text-embedding-ada-002"
    )
    assert job.to_job_kwargs() == {
        "chunks": [
            {"text": "a", "metadata": {}},
            {"text": "b", "metadata": {"page": 1}},
            {"text": "c", "metadata": {}, "id": "7"},
        ],
        "collection_name": "docs",
        "model_name": None,
        "batch_size": 100,
        "use_cache": True,
    }


def test_a_chunk_without_a_text_is_refused():
    with pytest.raises(TypeError, match="chunk of type int"):
        BatchEmbeddingJob([1], "docs").to_job_kwargs()


# --- progress -------------------------------------------------------------------------------------


async def test_the_tracker_keeps_so_many_jobs_and_ended_ones_go_first():
    tracker = ProgressTracker(max_jobs=3)
    for name in "abc":
        await tracker.initialize_job(name, 1)
    await tracker.update_progress("b", status=EmbeddingStatus.COMPLETED)
    await tracker.initialize_job("d", 1)
    assert tracker.get_active_jobs() == ["a", "c", "d"]
    await tracker.initialize_job("e", 1)
    assert tracker.get_active_jobs() == ["c", "d", "e"]
    assert tracker.get_stats() == {"active_jobs": 3, "jobs_by_status": {"pending": 3}}


async def test_an_attempt_begins_with_counters_at_0():
    tracker = ProgressTracker()
    await tracker.initialize_job("a", 5)
    await tracker.update_progress("a", texts_processed=3, cache_misses=3, error="broken")
    await tracker.initialize_job("a", 5, EmbeddingStatus.PROCESSING)
    progress = await tracker.get_progress("a")
    assert (progress.texts_processed, progress.cache_misses, progress.error) == (0, 0, None)


async def test_what_a_reader_got_does_not_change():
    tracker = ProgressTracker()
    await tracker.initialize_job("a", 5)
    before = await tracker.get_progress("a")
    await tracker.update_progress("a", texts_processed=3)
    assert before.texts_processed == 0
    assert await tracker.remove_job("a")
    assert not await tracker.remove_job("a")
    assert await tracker.get_progress("a") is None
    await tracker.update_progress("a", texts_processed=3)


# --- cache ----------------------------------------------------------------------------------------


async def test_each_text_is_computed_once_and_counted_once():
    provider, cache = Counting(), EmbeddingCache()
    texts = [f"text {n}" for n in range(300)]
    _, hits, misses = await embed_with_cache(provider, cache, texts)
    assert (hits, misses, len(provider.asked)) == (0, 300, 300)
    vectors, hits, misses = await embed_with_cache(provider, cache, [*texts, "new"])
    assert (hits, misses, len(provider.asked)) == (300, 1, 301)
    assert vectors[-1] == [3.0, 0.5, 0.25, 1.0]


async def test_equal_texts_are_computed_once():
    provider = Counting()
    vectors, hits, misses = await embed_with_cache(provider, EmbeddingCache(), ["a", "bb", "a"])
    assert provider.asked == ["a", "bb"]
    assert vectors[0] == vectors[2] != vectors[1]
    assert (hits, misses) == (0, 3)


async def test_without_a_cache_all_are_computed_every_time():
    provider = Counting()
    for _ in range(2):
        await embed_with_cache(provider, None, ["a"])
    assert provider.asked == ["a", "a"]


async def test_no_texts_send_no_request():
    provider = Counting()
    assert await embed_with_cache(provider, EmbeddingCache(), []) == ([], 0, 0)
    assert provider.asked == []


@pytest.mark.parametrize(
    ("gives", "problem"),
    [
        (lambda vectors: vectors[:-1], "9 vectors for 10 texts"),
        (lambda vectors: [*vectors[:-1], []], "a vector of length 0 for text 9"),
        (lambda vectors: [*vectors[:-1], [1.0]], "a vector of length 1 for text 9, not 4"),
        (lambda vectors: [*vectors[:-1], [float("nan")] * 4], "finite"),
    ],
)
async def test_what_a_provider_gives_is_checked_and_nothing_of_a_bad_answer_is_kept(gives, problem):
    cache = EmbeddingCache()
    with pytest.raises(EmbeddingMismatchError, match=problem):
        await embed_with_cache(Counting(gives), cache, [f"text {n}" for n in range(10)])
    assert cache.size() == 0


async def test_the_cache_is_bounded_and_forgets_by_time(fake_clock):
    from lexigram import clock

    cache = EmbeddingCache(max_entries=5, ttl=60)
    with clock.use(fake_clock):
        await cache.set_batch([(str(n), [1.0]) for n in range(9)], "m")
        assert cache.size() == 5
        assert await cache.get("8", "m") == [1.0]
        fake_clock.advance(61)
        assert await cache.get("8", "m") is None


async def test_models_do_not_share_vectors():
    cache = EmbeddingCache()
    await cache.set("text", "one", [1.0])
    assert await cache.get("text", "two") is None
    assert await cache.get("text", "one") == [1.0]


async def test_texts_that_only_look_alike_do_not_share_vectors():
    cache = EmbeddingCache()
    await cache.set("b", "a", [1.0])
    await cache.set("a\0b", "", [2.0])
    assert await cache.get("b", "a") == [1.0]
    assert await cache.get("\ud800", "a") is None


def test_keys_are_equal_in_every_process():
    code = "from lexigram.ai.workers.batch_embedding.cache import cache_key; print(cache_key('t', 'm'))"
    keys = {
        subprocess.check_output(
            [sys.executable, "-c", code], timeout=50, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(keys) == 1


async def test_get_batch_names_what_is_missing_by_place():
    cache = EmbeddingCache()
    await cache.set("b", "m", [1.0, 2.0])
    vectors, misses = await cache.get_batch(["a", "b", "c"], "m")
    assert vectors == [None, [1.0, 2.0], None]
    assert misses == [(0, "a"), (2, "c")]


@pytest.mark.parametrize("serializer", ["msgpack", "json"])
async def test_vectors_come_back_from_a_cache_of_the_application(serializer):
    backend = MemoryCache(values=Values(serializer))
    cache = EmbeddingCache(backend)
    vectors = await HashingEmbeddings(16).embed_texts(["some words here"])
    await cache.set("some words here", "m", vectors[0])
    assert await EmbeddingCache(backend).get("some words here", "m") == pytest.approx(vectors[0])
    assert cache.size() == 0
    assert len(backend) == 1


async def test_clearing_leaves_what_others_have_in_the_backend():
    backend = MemoryCache()
    await backend.set("mine", 1)
    cache = EmbeddingCache(backend)
    await cache.set("a", "m", [1.0])
    await cache.clear()
    assert await cache.get("a", "m") is None
    assert (await backend.get("mine")).unwrap() == 1


async def test_a_cache_that_fails_costs_time_and_no_vector(logs):
    backend = FakeCache()
    provider, cache = Counting(), EmbeddingCache(backend)
    with backend.outage():
        vectors, hits, misses = await embed_with_cache(provider, cache, ["a"])
    assert (len(vectors), hits, misses) == (1, 0, 1)
    logs.assert_logged("embedding cache failed")


@pytest.mark.parametrize("kept", ["text of another", b"abc", b"", 7, [1.0], None])
async def test_a_foreign_cache_value_is_not_a_vector(kept):
    from lexigram.ai.workers.batch_embedding.cache import cache_key

    backend = MemoryCache()
    await backend.set(cache_key("a", Counting.model_id), kept)
    vectors, hits, _ = await embed_with_cache(Counting(), EmbeddingCache(backend), ["a"])
    assert (vectors, hits) == ([[1.0, 0.5, 0.25, 1.0]], 0)


async def test_a_vector_of_another_length_is_computed_anew():
    cache = EmbeddingCache()
    await cache.set("a", Counting.model_id, [1.0, 2.0])
    vectors, hits, misses = await embed_with_cache(Counting(), cache, ["a"])
    assert (len(vectors[0]), hits, misses) == (4, 0, 1)


async def test_the_old_call_works_for_providers_with_and_without_a_name():
    class Bare:
        async def embed_texts(self, texts):
            return [[1.0, 2.0] for _ in texts]

    cache = EmbeddingCache()
    assert await cache.get_embeddings_with_cache(["a"], "m", Bare()) == ([[1.0, 2.0]], 0, 1)
    assert await cache.get_embeddings_with_cache(["a"], "m", Bare()) == ([[1.0, 2.0]], 1, 0)
    named = NamedEmbeddings(Bare(), model_id="mine", dimension=2)
    assert await cache.get_embeddings_with_cache(["a"], "mine", named) == ([[1.0, 2.0]], 0, 1)
    with pytest.raises(ModelsMixedError, match="'mine', not 'm'"):
        await cache.get_embeddings_with_cache(["a"], "m", named)
