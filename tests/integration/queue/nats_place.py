"""The streams of a test on a running NATS server."""

import json

import nats


async def delete_streams(service, stream):
    """Delete the three streams of a driver; all must be there."""
    client = await nats.connect(f"nats://{service.address}")
    for name in (stream, f"{stream}-records", f"{stream}-dead"):
        answer = await client.request(f"$JS.API.STREAM.DELETE.{name}")
        assert json.loads(answer.data)["success"], answer.data
    await client.close()
