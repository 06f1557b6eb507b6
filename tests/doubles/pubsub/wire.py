"""The gRPC side of the double: the calls it knows, on the vendor's own message types.

A call that is not here is UNIMPLEMENTED, a field that is not here is INVALID_ARGUMENT.
"""

import asyncio
import json
import time

import grpc
from google.auth import jwt
from google.protobuf import empty_pb2
from google.pubsub_v1.types import pubsub as types
from tests.doubles.pubsub.broker import Refused, invalid

LONGEST_PULL = 20.0  # seconds; reference (Pull): waits "for a bounded amount of time"

# Requests and the fields of theirs that mean something here.
FIELDS = {
    "Topic": {"name", "labels"},
    "Subscription": {
        *("name", "topic", "ack_deadline_seconds", "labels", "enable_message_ordering", "filter"),
        *("message_retention_duration", "expiration_policy", "dead_letter_policy"),
        "retry_policy",
    },
    "PubsubMessage": {"data", "attributes", "ordering_key", "message_id", "publish_time"},
    "PullRequest": {"subscription", "max_messages"},  # return_immediately is deprecated
    "SeekRequest": {"subscription", "snapshot"},
    "CreateSnapshotRequest": {"name", "subscription"},
}


def pb(name):
    return getattr(types, name).pb()


class Wire:
    def __init__(self, project, account=None):
        self.project = project
        self.account = account  # its certificate; without one, anybody may come
        self.news = {}  # subscription -> event
        self.faults = {}  # method -> [status, how often, text]

    # Publisher.

    async def create_topic(self, request, context):
        return self.project.create_topic(request)

    async def get_topic(self, request, context):
        return self.project.topic(request.topic)

    async def delete_topic(self, request, context):
        self.project.delete_topic(request.topic)
        return empty_pb2.Empty()

    async def list_topics(self, request, context):
        names = [one for one in self.project.topics if one.startswith(f"{request.project}/")]
        names, token = _page(sorted(names), request)
        found = [self.project.topics[one] for one in names]
        return pb("ListTopicsResponse")(topics=found, next_page_token=token)

    async def list_topic_subscriptions(self, request, context):
        self.project.topic(request.topic)
        found = sorted(one.settings.name for one in self.project.of_topic(request.topic))
        names, token = _page(found, request)
        return pb("ListTopicSubscriptionsResponse")(subscriptions=names, next_page_token=token)

    async def publish(self, request, context):
        for one in request.messages:
            _known(one)
        ids = self.project.publish(request.topic, request.messages)
        return pb("PublishResponse")(message_ids=ids)

    # Subscriber.

    async def create_subscription(self, request, context):
        made = self.project.create_subscription(request)
        event = self.news[made.name] = asyncio.Event()
        self.project.subscription(made.name).wake = event.set
        return made

    async def get_subscription(self, request, context):
        return self.project.subscription(request.subscription).settings

    async def update_subscription(self, request, context):
        _known(request.subscription)
        return self.project.update_subscription(request.subscription, request.update_mask.paths)

    async def list_subscriptions(self, request, context):
        all_names = self.project.subscriptions
        names = sorted(one for one in all_names if one.startswith(f"{request.project}/"))
        names, token = _page(names, request)
        found = [self.project.subscriptions[one].settings for one in names]
        return pb("ListSubscriptionsResponse")(subscriptions=found, next_page_token=token)

    async def delete_subscription(self, request, context):
        self.project.delete_subscription(request.subscription)
        return empty_pb2.Empty()

    async def pull(self, request, context):
        until = time.monotonic() + min(LONGEST_PULL, context.time_remaining() or LONGEST_PULL)
        name = request.subscription
        while True:
            batch = self.project.pull(name, request.max_messages)
            now = time.monotonic()
            if batch or now >= until:
                break
            found = self.project.subscription(name)
            due = self.project.expire(found)
            event = self.news[name]
            event.clear()
            try:
                async with asyncio.timeout(max(0.001, min(until, due or until) - now)):
                    await event.wait()
            except TimeoutError:
                pass
        received = pb("ReceivedMessage")
        attempt_of = self.project.attempt_of
        return pb("PullResponse")(
            received_messages=[
                received(
                    ack_id=one.ack_id,
                    message=one.message,
                    delivery_attempt=attempt_of(name, one),
                )
                for one in batch
            ]
        )

    async def acknowledge(self, request, context):
        self.project.acknowledge(request.subscription, request.ack_ids)
        return empty_pb2.Empty()

    async def modify_ack_deadline(self, request, context):
        seconds = request.ack_deadline_seconds
        self.project.modify(request.subscription, request.ack_ids, seconds)
        return empty_pb2.Empty()

    async def create_snapshot(self, request, context):
        topic, expires = self.project.create_snapshot(request.name, request.subscription)
        made = pb("Snapshot")(name=request.name, topic=topic)
        made.expire_time.FromSeconds(int(expires))
        return made

    async def delete_snapshot(self, request, context):
        self.project.delete_snapshot(request.snapshot)
        return empty_pb2.Empty()

    async def seek(self, request, context):
        if request.WhichOneof("target") != "snapshot":
            raise invalid("the double seeks to snapshots only")
        self.project.seek(request.subscription, request.snapshot)
        return pb("SeekResponse")()

    # Faults: of the double alone.

    async def fault(self, body, context):
        """``{"Publish": ["UNAVAILABLE", 2, "text"]}``: so often; nothing ends all of them."""
        self.faults = json.loads(body)
        return b""

    def _fail(self, method):
        fault = self.faults.get(method) or self.faults.get("*")
        if fault and fault[1] > 0:
            fault[1] -= 1
            raise Refused(fault[0], fault[2] if len(fault) > 2 else f"{fault[0]} by the test")

    def _authenticate(self, context):
        """authentication: calls have a token, signed by the key of a service account."""
        if self.account is None:
            return
        found = dict(context.invocation_metadata() or ()).get("authorization", "")
        try:
            jwt.decode(found.removeprefix("Bearer "), certs=self.account)
        except ValueError as error:
            text = "Request had invalid authentication credentials."
            raise Refused("UNAUTHENTICATED", text) from error

    def handler(self, method, request_type):
        do = getattr(self, "".join(f"_{c.lower()}" if c.isupper() else c for c in method)[1:])

        async def handle(request, context):
            try:
                self._authenticate(context)
                self._fail(method)
                _known(request)
                return await do(request, context)
            except Refused as refused:
                await context.abort(getattr(grpc.StatusCode, refused.code), refused.text)

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=pb(request_type).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def handlers(self):
        yield grpc.method_handlers_generic_handler(
            "google.pubsub.v1.Publisher",
            {method: self.handler(method, kind) for method, kind in PUBLISHER.items()},
        )
        yield grpc.method_handlers_generic_handler(
            "google.pubsub.v1.Subscriber",
            {method: self.handler(method, kind) for method, kind in SUBSCRIBER.items()},
        )
        yield grpc.method_handlers_generic_handler(
            "lexigram.Double", {"Fault": grpc.unary_unary_rpc_method_handler(self.fault)}
        )


PUBLISHER = {
    "CreateTopic": "Topic",
    "GetTopic": "GetTopicRequest",
    "DeleteTopic": "DeleteTopicRequest",
    "ListTopics": "ListTopicsRequest",
    "ListTopicSubscriptions": "ListTopicSubscriptionsRequest",
    "Publish": "PublishRequest",
}
SUBSCRIBER = {
    "CreateSubscription": "Subscription",
    "GetSubscription": "GetSubscriptionRequest",
    "UpdateSubscription": "UpdateSubscriptionRequest",
    "ListSubscriptions": "ListSubscriptionsRequest",
    "DeleteSubscription": "DeleteSubscriptionRequest",
    "Pull": "PullRequest",
    "Acknowledge": "AcknowledgeRequest",
    "ModifyAckDeadline": "ModifyAckDeadlineRequest",
    "CreateSnapshot": "CreateSnapshotRequest",
    "DeleteSnapshot": "DeleteSnapshotRequest",
    "Seek": "SeekRequest",
}


def _known(message):
    """Refuse what is set and not understood."""
    allowed = FIELDS.get(message.DESCRIPTOR.name)
    for field, _ in message.ListFields():
        if allowed is not None and field.name not in allowed:
            raise invalid(f"the double does not know {message.DESCRIPTOR.name}.{field.name}")


def _page(names, request):
    start = int(request.page_token or 0)
    end = start + (request.page_size or 100)
    return names[start:end], str(end) if end < len(names) else ""


async def serve(project, folder=None):
    """A server on a port of its own, and the port; with secrets, only for their owner."""
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=unlimited)
    account = (folder / "account.crt").read_bytes() if folder else None
    server.add_generic_rpc_handlers(tuple(Wire(project, account).handlers()))
    if folder:
        pair = ((folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port
