"""All that a checkpoint store promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.checkpoints.lists import ListsSpec
from lexigram.testing.conformance.checkpoints.owners import OwnersSpec
from lexigram.testing.conformance.checkpoints.retention import RetentionSpec
from lexigram.testing.conformance.checkpoints.sharing import SharingSpec
from lexigram.testing.conformance.checkpoints.steps import StepsSpec


class CheckpointConformance(StepsSpec, OwnersSpec, ListsSpec, RetentionSpec, SharingSpec):
    """Run it on a store: ``conformance_suite(CheckpointConformance, MyStore)``."""
