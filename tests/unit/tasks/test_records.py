"""Jobs made from all of their fields at once are the jobs that the constructor makes."""

from dataclasses import fields
from uuid import RFC_4122, UUID

from lexigram.contracts.infra.tasks import Job
from lexigram.tasks._records import DEFAULTS, job_of, new_id


def test_a_job_of_its_values_is_the_job_that_the_constructor_makes():
    made = job_of({**DEFAULTS, "name": "mail", "id": "1", "kwargs": {"to": "ada"}})
    assert made == Job(name="mail", id="1", kwargs={"to": "ada"})
    assert vars(made).keys() == {item.name for item in fields(Job)}


def test_the_constructor_of_a_job_does_nothing_but_take_its_values():
    """Else ``job_of``, which does not call it, would leave something out."""
    assert not hasattr(Job, "__post_init__")
    assert "__init__" in vars(Job)
    assert Job.__new__ is object.__new__


def test_every_field_has_a_default_but_those_that_each_job_has_of_its_own():
    assert {item.name for item in fields(Job)} - DEFAULTS.keys() == {"name", "id", "kwargs"}


def test_ids_are_random_uuids():
    made = [new_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    for text in made:
        known = UUID(hex=text)
        assert (known.version, known.variant, known.hex) == (4, RFC_4122, text)
