from hypothesis import given
from hypothesis import strategies as st

from lexigram.ai.workers.embeddings.batching import batches, estimate_tokens


def test_batches_are_cut_by_number():
    assert list(batches("abcde", 2)) == [range(2), range(2, 4), range(4, 5)]


def test_nothing_gives_no_batch():
    assert list(batches([], 10, 10)) == []


def test_a_text_with_too_many_tokens_is_a_batch_of_its_own():
    texts = ["a", "bbbbbbbbbb", "c", "d"]
    assert list(batches(texts, 10, 5, len)) == [range(1), range(1, 2), range(2, 4)]


def test_other_scripts_are_not_taken_for_short_texts():
    assert estimate_tokens("word " * 100) == 126
    assert estimate_tokens("語" * 100) == 76
    assert estimate_tokens("\ud800") == 1


@given(
    st.lists(st.text(min_size=1, max_size=30)), st.integers(1, 8), st.integers(1, 60) | st.none()
)
def test_batches_hold_every_text_once_in_order_and_keep_to_the_limits(texts, most, tokens):
    parts = list(batches(texts, most, tokens, len))
    assert [n for part in parts for n in part] == list(range(len(texts)))
    for part in parts:
        assert 1 <= len(part) <= most
        total = sum(len(texts[n]) for n in part)
        assert tokens is None or total <= tokens or len(part) == 1
