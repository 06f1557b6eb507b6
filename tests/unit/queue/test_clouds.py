"""What the drivers of the clouds share."""

import anyio
import pytest

from lexigram.contracts.core.health import HealthStatus
from lexigram.contracts.queue import QueueError
from lexigram.queue.backends.clouds import health_of, json_object, translate_errors, unless

pytestmark = pytest.mark.anyio

FACTS = {"address": "somewhere"}


class ForeignError(Exception):
    pass


def is_foreign(error):
    return isinstance(error, ForeignError)


@pytest.mark.parametrize("error", [ForeignError("x"), TimeoutError(), OSError(), ValueError("x")])
def test_errors_of_client_and_network_become_ours_with_their_cause(error):
    with pytest.raises(QueueError, match="ours") as caught:
        with translate_errors(is_foreign, lambda _: QueueError("ours")):
            raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [QueueError("already"), KeyError("a bug of ours")])
def test_errors_of_ours_and_of_nobody_pass_as_they_are(error):
    with pytest.raises(type(error)) as caught:
        with translate_errors(is_foreign, lambda _: QueueError("ours")):
            raise error
    assert caught.value is error


async def test_a_cancellation_passes_through_a_translation():
    with anyio.move_on_after(0) as scope:
        with translate_errors(is_foreign, lambda _: QueueError("ours")):
            await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_an_answer_that_was_expected_is_no_error_and_others_are():
    async def refuse(error):
        if error is not None:
            raise error

    assert await unless(KeyError, refuse(None))
    assert not await unless(KeyError, refuse(KeyError()))
    with pytest.raises(ValueError, match="other"):
        await unless(KeyError, refuse(ValueError("other")))


async def test_health_is_what_the_service_answers_in_time():
    async def refuse():
        raise QueueError("not today")

    fine = await health_of(anyio.lowlevel.checkpoint, "SQS", FACTS, 5.0)
    assert (fine.status, fine.message, fine.error) == (HealthStatus.HEALTHY, "SQS queue OK", None)
    refused = await health_of(refuse, "SQS", FACTS, 5.0)
    assert (refused.status, refused.error) == (HealthStatus.UNHEALTHY, "not today")
    silent = await health_of(anyio.sleep_forever, "SQS", FACTS, 0.01)
    assert (silent.status, silent.error) == (HealthStatus.UNHEALTHY, "no answer in 0.01 s")
    assert fine.details == refused.details == silent.details == FACTS


@pytest.mark.parametrize("text", [None, "", "[1]", "{", "1"])
def test_what_is_no_json_object_is_an_empty_one(text):
    assert json_object(text) == {}


def test_a_json_object_is_read():
    assert json_object('{"a": 1}') == {"a": 1}
