"""All that a vector store promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.vectors.operations import HealthSpec, MaintenanceSpec, SharingSpec
from lexigram.testing.conformance.vectors.search import (
    FiltersSpec,
    MetricsSpec,
    SearchSpec,
    WordsSpec,
)
from lexigram.testing.conformance.vectors.storage import (
    CollectionsSpec,
    ModelsSpec,
    RecordsSpec,
    ReplaceSpec,
)


class VectorConformance(
    CollectionsSpec,
    RecordsSpec,
    SearchSpec,
    MetricsSpec,
    FiltersSpec,
    ReplaceSpec,
    ModelsSpec,
    HealthSpec,
    WordsSpec,
    SharingSpec,
    MaintenanceSpec,
):
    """Run it on a store: ``conformance_suite(VectorConformance, MyStore)``."""
