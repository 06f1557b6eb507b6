"""All that a blob store promises, in one class to run."""

from __future__ import annotations

from lexigram.testing.conformance.blobs.atomic import AtomicSpec
from lexigram.testing.conformance.blobs.content import ContentSpec
from lexigram.testing.conformance.blobs.facts import ContentTypesSpec, TimesSpec
from lexigram.testing.conformance.blobs.listing import ListingSpec
from lexigram.testing.conformance.blobs.paths import PathsSpec
from lexigram.testing.conformance.blobs.streams import StreamsSpec


class BlobConformance(
    ContentSpec, StreamsSpec, AtomicSpec, ListingSpec, PathsSpec, ContentTypesSpec, TimesSpec
):
    """Run it on a blob store: ``conformance_suite(BlobConformance, make_store)``."""
