from hypothesis import given
from hypothesis import strategies as st

from lexigram.resilience.window import BUCKETS, SlidingWindow


def test_a_window_without_calls_has_no_failures():
    assert SlidingWindow(60).share() == 0.0


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=200))
def test_it_counts_what_the_last_ten_buckets_hold(steps):
    window, now, seen = SlidingWindow(float(BUCKETS)), 0, []
    for pause, failed in steps:
        now += pause
        window.add(float(now), failed=failed)
        seen.append((now, failed))
        held = [bad for at, bad in seen if at > now - BUCKETS]
        assert (window.calls, window.failures) == (len(held), sum(held))
        assert len(window._buckets) <= BUCKETS
    window.clear()
    assert (window.calls, window.failures) == (0, 0)
