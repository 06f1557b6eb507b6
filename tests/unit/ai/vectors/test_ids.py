from lexigram.ai.workers.vectors.records import chunk_ids


def test_ids_are_repeatable_and_equal_texts_are_numbered():
    chunks = [("a.md", "Intro", "same"), ("a.md", "Intro", "same"), ("b.md", "Intro", "same")]
    assert chunk_ids(chunks) == chunk_ids(iter(chunks))
    assert len(set(chunk_ids(chunks))) == 3
