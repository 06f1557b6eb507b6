"""All that a vector store promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.vectors.collections import CollectionsSpec
from lexigram.testing.conformance.vectors.filters import FiltersSpec
from lexigram.testing.conformance.vectors.health import HealthSpec
from lexigram.testing.conformance.vectors.maintenance import MaintenanceSpec
from lexigram.testing.conformance.vectors.models import ModelsSpec
from lexigram.testing.conformance.vectors.records import RecordsSpec
from lexigram.testing.conformance.vectors.replacing import ReplaceSpec
from lexigram.testing.conformance.vectors.searching import MetricsSpec, SearchSpec
from lexigram.testing.conformance.vectors.sharing import SharingSpec
from lexigram.testing.conformance.vectors.words import WordsSpec


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
