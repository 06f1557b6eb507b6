import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexigram.contracts.core import Err, Ok, UnwrapError

RESULTS = st.one_of(st.builds(Ok, st.integers()), st.builds(Err, st.text()))


def half(number):
    return Ok(number // 2) if number % 2 == 0 else Err("odd")


def describe(result):
    match result:
        case Ok(value):
            return f"value {value}"
        case Err(error):
            return f"error {error}"


def test_pattern_matching_takes_out_value_and_error():
    assert describe(Ok(1)) == "value 1"
    assert describe(Err("no")) == "error no"


def test_pattern_matching_looks_inside():
    match Ok((1, "a")):
        case Ok((number, letter)):
            assert (number, letter) == (1, "a")
        case _:
            pytest.fail("an Ok of a pair must match")


def test_equal_results_are_equal_and_hash_alike_but_ok_is_never_err():
    assert Ok(1) == Ok(1)
    assert Ok(1) != Ok(2)
    assert Ok(1) != Err(1)
    assert Err(1) != Ok(1)
    assert Ok(1) != 1
    assert len({Ok(1), Ok(1), Err(1)}) == 2
    assert (repr(Ok("a")), repr(Err("b"))) == ("Ok('a')", "Err('b')")


def test_a_result_cannot_be_changed():
    with pytest.raises(AttributeError):
        Ok(1).value = 2
    with pytest.raises(AttributeError):
        Err(1).extra = 2


def test_unwrapping_the_wrong_side_raises_with_what_was_there():
    reason = KeyError("id")
    with pytest.raises(UnwrapError, match="KeyError\\('id'\\)") as caught:
        Err(reason).unwrap()
    assert caught.value.__cause__ is reason
    with pytest.raises(UnwrapError, match="need a user: 'gone'"):
        Err("gone").expect("need a user")
    with pytest.raises(UnwrapError, match="Ok\\(3\\)"):
        Ok(3).unwrap_err()


def test_the_error_side_passes_by_what_concerns_values():
    stays = Err("e")
    never = None  # would raise if it were called
    assert stays.map_sync(never) is stays
    assert stays.and_then_sync(never) is stays
    assert stays.filter(never, "other") is stays
    assert stays.inspect(never) is stays
    assert stays.flatten() is stays
    assert stays.to_optional() is None


def test_the_value_side_passes_by_what_concerns_errors():
    stays = Ok(1)
    never = None
    assert stays.map_err(never) is stays
    assert stays.or_else_sync(never) is stays
    assert stays.inspect_err(never) is stays
    assert stays.unwrap_or(9) == stays.unwrap_or_else(never) == stays.to_optional() == 1


def test_match_calls_one_of_two_functions():
    assert Ok(2).match(ok=lambda value: value * 10, err=None) == 20
    assert Err(2).match(ok=None, err=lambda error: -error) == -2


def test_filter_turns_a_value_away_with_the_given_error():
    assert Ok(3).filter(lambda value: value > 2, "small") == Ok(3)
    assert Ok(1).filter(lambda value: value > 2, "small") == Err("small")


def test_flatten_takes_away_one_level():
    assert Ok(Ok(1)).flatten() == Ok(1)
    assert Ok(Err("e")).flatten() == Err("e")


def test_inspect_sees_the_value_and_changes_nothing():
    seen = []
    assert Ok(1).inspect(seen.append) == Ok(1)
    assert Err(2).inspect_err(seen.append) == Err(2)
    assert seen == [1, 2]


async def test_async_forms_await_the_function_on_their_side_only():
    async def double(value):
        return value * 2

    async def fail(value):
        return Err(f"no {value}")

    async def recover(error):
        return Ok(f"was {error}")

    assert await Ok(2).map(double) == Ok(4)
    assert await Ok(2).and_then(fail) == Err("no 2")
    assert await Ok(2).or_else(recover) == Ok(2)
    assert await Err("e").map(double) == Err("e")
    assert await Err("e").and_then(fail) == Err("e")
    assert await Err("e").or_else(recover) == Ok("was e")


@given(RESULTS)
def test_every_result_is_exactly_one_of_ok_and_err(result):
    assert result.is_ok() is not result.is_err()
    assert result.unwrap_or(None) is (result.value if result.is_ok() else None)


@given(RESULTS)
def test_mapping_the_identity_changes_nothing(result):
    assert result.map_sync(lambda value: value) == result
    assert result.map_err(lambda error: error) == result
    assert result.and_then_sync(Ok) == result
    assert result.or_else_sync(Err) == result


@given(RESULTS)
def test_chaining_is_associative(result):
    left = result.and_then_sync(half).and_then_sync(half)
    right = result.and_then_sync(lambda value: half(value).and_then_sync(half))
    assert left == right
