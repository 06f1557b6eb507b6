"""The contract of blob stores on a folder, in memory and on an S3 server."""

import tempfile
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from anyio import to_thread

from lexigram.blobs import BlobConfig, BlobStore
from lexigram.testing.conformance import conformance_suite
from lexigram.testing.conformance.blobs import BlobCapability, BlobConformance

EVERYTHING = set(BlobCapability)


@asynccontextmanager
async def folder_store():
    folder = await to_thread.run_sync(tempfile.TemporaryDirectory)
    yield await BlobStore.open(BlobConfig(root=folder.name))
    await to_thread.run_sync(folder.cleanup)


async def memory_store():
    return await BlobStore.open(BlobConfig(scheme="memory"))


@pytest.fixture(scope="module", autouse=True)
def s3_server():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    S3["endpoint"] = f"http://{host}:{port}"
    yield
    server.stop()


S3 = {}


def make_bucket(name):
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=S3["endpoint"],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket=name)
    client.close()


async def s3_store():
    bucket = f"lex-{uuid4().hex}"
    await to_thread.run_sync(make_bucket, bucket)
    options = {
        "bucket": bucket,
        "region": "us-east-1",
        "endpoint": S3["endpoint"],
        "access_key_id": "test",
        "secret_access_key": "test",
    }
    return await BlobStore.open(BlobConfig(scheme="s3", root="inner/folder", options=options))


TestFolder = conformance_suite(
    BlobConformance, folder_store, capabilities=EVERYTHING - {BlobCapability.CONTENT_TYPES}
)
TestMemory = conformance_suite(
    BlobConformance, memory_store, capabilities=EVERYTHING - {BlobCapability.TIMES}
)
TestS3 = conformance_suite(BlobConformance, s3_store, capabilities=EVERYTHING)
