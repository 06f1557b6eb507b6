"""An application to be served: REST, and a worker unless told otherwise."""

from lexigram.app import Application
from lexigram.blobs import BlobModule
from lexigram.sql import SqlModule
from lexigram.web import WebModule
from lexigram.workflow import WorkflowModule
from lexigram.workflow.durable.web.contributor import DurableRouteContributor


async def look(doc):
    """The one step."""
    return {"size": doc.file_size}


def create() -> Application:
    web = WebModule.stub(contributors=[DurableRouteContributor()])
    workflow = WorkflowModule.configure(step_handlers={"look": look})
    return Application("served", modules=[SqlModule, BlobModule, workflow, web])
