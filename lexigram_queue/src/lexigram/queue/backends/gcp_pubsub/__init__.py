"""The bus on Google Cloud Pub/Sub."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.queue.backends.gcp_pubsub.driver import (
        CAPABILITIES,
        GCPPubSubDriver,
        GCPPubSubQueue,
        build,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.queue.backends.gcp_pubsub.driver": [
                "CAPABILITIES",
                "GCPPubSubDriver",
                "GCPPubSubQueue",
                "build",
            ]
        },
    )

__all__ = ["CAPABILITIES", "GCPPubSubDriver", "GCPPubSubQueue", "build"]
