"""What a Pub/Sub project holds: topics, subscriptions, snapshots, and who has which message.

No wire here. Each rule names the page of the vendor it follows; anything else is refused.
Pages: https://cloud.google.com/pubsub/docs/<name>, quotas: https://cloud.google.com/pubsub/quotas,
reference: https://cloud.google.com/pubsub/docs/reference/rpc/google.pubsub.v1
"""

import heapq
import itertools
import re
import time

from tests.doubles.pubsub.filters import matcher

WAITING, OUT, PAUSED, ACKED = "waiting", "out", "paused", "acked"

# reference (Topic.name, Subscription.name): 3 to 255 of these, a letter first, not goog
RESOURCE = re.compile(
    r"projects/([a-z0-9-]+)/(topics|subscriptions|snapshots)/([A-Za-z][\w.~+%-]{2,254})"
)
# labels: https://cloud.google.com/pubsub/docs/labels
LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")

MOST_MESSAGES = 1000  # quotas: a publish request
MOST_BYTES = 10_000_000  # quotas: a publish request, and a message
MOST_ATTRIBUTES, LONGEST_KEY, LONGEST_VALUE = 100, 256, 1024  # quotas: a message
ACK_BYTES = 512 * 1024  # quotas: acknowledge and modifyAckDeadline requests
WEEK = 7 * 24 * 3600


class Refused(Exception):
    """``code`` is the name of a gRPC status."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


def invalid(text):
    return Refused("INVALID_ARGUMENT", text)


class Entry:
    """One message in one subscription."""

    __slots__ = ("ack_id", "attempt", "deadline", "message", "number", "state")

    def __init__(self, number, message):
        self.number, self.message = number, message
        self.state, self.attempt, self.deadline, self.ack_id = WAITING, 1, 0.0, None


class Subscription:
    """``settings`` is the message of the wire; the rest is what it holds."""

    def __init__(self, settings):
        self.settings = settings
        self.matches = matcher(settings.filter)
        self.waiting = []  # heap of (number, entry): redelivered ones come first again
        self.entries = {}  # number -> entry that is not acknowledged
        self.by_ack = {}
        self.deadlines = []
        self.pauses = []  # heap of (until, number, entry): what the retry policy holds back
        self.keys = {}  # ordering key -> entries, oldest first
        self.wake = None  # called when something may be pulled

    def add(self, number, message):
        entry = Entry(number, message)
        self.entries[number] = entry
        if message.ordering_key and self.settings.enable_message_ordering:
            self.keys.setdefault(message.ordering_key, []).append(entry)
        self._wait(entry)

    def _wait(self, entry):
        entry.state, entry.ack_id = WAITING, None
        heapq.heappush(self.waiting, (entry.number, entry))
        if self.wake is not None:
            self.wake()

    def again(self, entry):
        """reference (RetryPolicy): exponential, from the least to the longest pause."""
        if not self.settings.HasField("retry_policy"):
            self._wait(entry)
            return
        policy = self.settings.retry_policy
        pause = policy.minimum_backoff.ToTimedelta().total_seconds() * 2 ** (entry.attempt - 2)
        pause = min(pause, policy.maximum_backoff.ToTimedelta().total_seconds())
        entry.state, entry.ack_id = PAUSED, None
        heapq.heappush(self.pauses, (time.monotonic() + pause, entry.number, entry))
        if self.wake is not None:
            self.wake()

    def resume(self, now):
        """Let those come whose pause is over; when the next one is, or None."""
        while self.pauses:
            until, number, entry = self.pauses[0]
            if entry.state is PAUSED and self.entries.get(number) is entry:
                if until > now:
                    return until
                self._wait(entry)
            heapq.heappop(self.pauses)
        return None

    def line(self, entry):
        """The entries of its key; None where order does not matter."""
        return self.keys.get(entry.message.ordering_key) if entry.message.ordering_key else None


class Project:
    def __init__(self):
        self.topics, self.subscriptions, self.snapshots = {}, {}, {}
        self.numbers = itertools.count(1)
        self.receipts = itertools.count(1)

    # Topics.

    def create_topic(self, topic):
        _name(topic.name, "topics")
        _labels(topic.labels)
        if topic.name in self.topics:
            raise Refused("ALREADY_EXISTS", f"Resource already exists: {topic.name}")
        self.topics[topic.name] = topic
        return topic

    def topic(self, name):
        if name not in self.topics:
            raise Refused("NOT_FOUND", f"Resource not found (resource={name})")
        return self.topics[name]

    def delete_topic(self, name):
        """reference (DeleteTopic): subscriptions stay, their topic is ``_deleted-topic_``."""
        self.topic(name)
        del self.topics[name]
        for found in self.of_topic(name):
            found.settings.topic = "_deleted-topic_"

    def of_topic(self, name):
        return [one for one in self.subscriptions.values() if one.settings.topic == name]

    def publish(self, name, messages):
        """reference (Publish, PubsubMessage) and quotas."""
        self.topic(name)
        if not messages:
            raise invalid("The value for messages is too small. You passed 0 in the request")
        if len(messages) > MOST_MESSAGES:
            raise invalid(f"too many messages: {len(messages)}")
        if sum(one.ByteSize() for one in messages) > MOST_BYTES:
            raise invalid("Request payload size exceeds the limit: 10000000 bytes.")
        if len({one.ordering_key for one in messages}) > 1:
            raise invalid("all messages of a request must have the same ordering key")
        for one in messages:
            _check_message(one)
        return [self._store(name, one) for one in messages]

    def _store(self, name, message):
        number = next(self.numbers)
        message.message_id = str(number)
        message.publish_time.FromNanoseconds(time.time_ns())
        for found in self.of_topic(name):
            # subscription-message-filter: what does not match is acknowledged by the service
            if found.matches(message.attributes):
                found.add(number, message)
        return message.message_id

    # Subscriptions.

    def create_subscription(self, settings):
        """reference (Subscription) and subscription-properties."""
        _name(settings.name, "subscriptions")
        self.topic(settings.topic)
        if settings.name in self.subscriptions:
            raise Refused("ALREADY_EXISTS", f"Resource already exists: {settings.name}")
        if settings.ack_deadline_seconds == 0:
            settings.ack_deadline_seconds = 10
        if not settings.HasField("message_retention_duration"):
            settings.message_retention_duration.seconds = WEEK
        self._check(settings)
        self.subscriptions[settings.name] = Subscription(settings)
        return settings

    def _check(self, settings):
        _labels(settings.labels)
        if not 10 <= settings.ack_deadline_seconds <= 600:
            raise invalid(f"Invalid ack deadline given: {settings.ack_deadline_seconds}")
        if not 600 <= settings.message_retention_duration.seconds <= 31 * 24 * 3600:
            raise invalid("message_retention_duration: 10 minutes to 31 days")
        policy = settings.expiration_policy
        if policy.HasField("ttl") and policy.ttl.seconds < 24 * 3600:
            raise invalid("expiration_policy.ttl: at least 1 day")
        if settings.HasField("dead_letter_policy"):
            # dead-letter-topics: the topic must exist, 5 to 100 attempts
            policy = settings.dead_letter_policy
            self.topic(policy.dead_letter_topic)
            if policy.max_delivery_attempts == 0:
                policy.max_delivery_attempts = 5
            if not 5 <= policy.max_delivery_attempts <= 100:
                raise invalid("max_delivery_attempts: 5 to 100")
        if settings.HasField("retry_policy"):
            _check_pauses(settings.retry_policy)

    def update_subscription(self, settings, paths):
        """reference (UpdateSubscription): some properties, such as the filter, cannot change."""
        found = self.subscription(settings.name).settings
        changeable = {
            "ack_deadline_seconds",
            "labels",
            "message_retention_duration",
            "retry_policy",
        }
        if not paths or not set(paths) <= changeable:
            raise invalid(f"Invalid update_mask: {list(paths)}")
        changed = type(found)()
        changed.CopyFrom(found)
        for path in paths:
            changed.ClearField(path)
            if path == "ack_deadline_seconds":
                changed.ack_deadline_seconds = settings.ack_deadline_seconds
            elif path == "labels":
                changed.labels.update(settings.labels)
            elif settings.HasField(path):
                getattr(changed, path).CopyFrom(getattr(settings, path))
            elif path != "retry_policy":  # without one, messages come again at once
                raise invalid(f"{path} is required")
        self._check(changed)
        found.CopyFrom(changed)
        return found

    def subscription(self, name):
        if name not in self.subscriptions:
            raise Refused("NOT_FOUND", f"Resource not found (resource={name})")
        return self.subscriptions[name]

    def delete_subscription(self, name):
        gone = self.subscription(name)
        del self.subscriptions[name]
        if gone.wake is not None:
            gone.wake()

    # Messages out.

    def pull(self, name, most):
        """reference (Pull); what is given out is out until its ack deadline."""
        found = self.subscription(name)
        if most <= 0:
            raise invalid("max_messages must be positive")
        self.expire(found)
        deadline = time.monotonic() + found.settings.ack_deadline_seconds
        batch, blocked = [], []
        while found.waiting and len(batch) < min(most, MOST_MESSAGES):
            number, entry = heapq.heappop(found.waiting)
            if entry.state is not WAITING or found.entries.get(number) is not entry:
                continue
            if self._is_blocked(found, entry, batch):
                blocked.append((number, entry))
                continue
            entry.state, entry.deadline = OUT, deadline
            entry.ack_id = f"{found.settings.name.rsplit('/')[-1]}:{next(self.receipts)}"
            found.by_ack[entry.ack_id] = entry
            heapq.heappush(found.deadlines, (deadline, entry.ack_id))
            batch.append(entry)
        for pair in blocked:
            heapq.heappush(found.waiting, pair)
        return batch

    def _is_blocked(self, found, entry, batch):
        """ordering: in order, and by unary pull one batch of a key is outstanding at a time."""
        line = found.line(entry)
        if line is None:
            return False
        for other in line:
            if other is entry:
                return False
            if other.state is not ACKED and other not in batch:
                return True
        return False

    def attempt_of(self, name, entry):
        """reference (ReceivedMessage.delivery_attempt): 0 without a dead-letter policy."""
        settings = self.subscription(name).settings
        return entry.attempt if settings.HasField("dead_letter_policy") else 0

    def acknowledge(self, name, ack_ids):
        """reference (Acknowledge): a late one may succeed, and twice is no error."""
        found = self.subscription(name)
        _check_ids(name, ack_ids)
        for ack_id in ack_ids:
            # The worst a service may do: a late id acknowledges the message of another holder.
            entry = found.by_ack.pop(ack_id, None)
            if entry is not None and entry.number in found.entries:
                self._acked(found, entry)

    def _acked(self, found, entry):
        entry.state = ACKED
        line = found.line(entry)
        if line is None:
            found.entries.pop(entry.number, None)
            return
        # ordering: an acknowledged one may come again, as long as an earlier one is not
        while line and line[0].state is ACKED:
            found.entries.pop(line.pop(0).number, None)
        if not line:
            found.keys.pop(entry.message.ordering_key, None)
        if found.wake is not None:
            found.wake()

    def modify(self, name, ack_ids, seconds):
        """reference (ModifyAckDeadline): 0 to 600 seconds from now; 0 gives it back."""
        found = self.subscription(name)
        _check_ids(name, ack_ids)
        if not 0 <= seconds <= 600:
            raise invalid(f"Invalid ack deadline: {seconds}")
        self.expire(found)
        for ack_id in ack_ids:
            entry = found.by_ack.get(ack_id)
            # A late one changes nothing, and nobody is told.
            if entry is None or entry.state is not OUT or entry.ack_id != ack_id:
                continue
            if seconds == 0:
                self._again(found, entry)
            else:
                entry.deadline = time.monotonic() + seconds
                heapq.heappush(found.deadlines, (entry.deadline, ack_id))

    def expire(self, found):
        """Give back what is over its deadline or its pause; when the next one is, or None."""
        now = time.monotonic()
        over = self._expire(found, now)
        return min((one for one in (over, found.resume(now)) if one is not None), default=None)

    def _expire(self, found, now):
        while found.deadlines:
            deadline, ack_id = found.deadlines[0]
            entry = found.by_ack.get(ack_id)
            if entry is None or entry.ack_id != ack_id or entry.deadline > deadline:
                heapq.heappop(found.deadlines)  # acknowledged, given back or prolonged
            elif deadline > now:
                return deadline
            else:
                heapq.heappop(found.deadlines)
                self._again(found, entry)
        return None

    def _again(self, found, entry):
        """reference (delivery_attempt): each nack and each missed deadline counts."""
        line = found.line(entry)
        later = line[line.index(entry) + 1 :] if line is not None and entry in line else []
        if self._dead_lettered(found, entry):
            return
        entry.attempt += 1
        found.again(entry)
        # ordering: every later message of the key comes again, acknowledged ones too
        for other in later:
            if other.state is not WAITING:
                found._wait(other)

    def _dead_lettered(self, found, entry):
        """dead-letter-topics: forwarded with the attributes listed there."""
        settings = found.settings
        if not settings.HasField("dead_letter_policy"):
            return False
        policy = settings.dead_letter_policy
        if entry.attempt < policy.max_delivery_attempts:
            return False
        if policy.dead_letter_topic not in self.topics:
            return False
        copy = type(entry.message)()
        copy.CopyFrom(entry.message)
        _, project, _, name = settings.name.split("/")
        copy.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] = str(entry.attempt)
        copy.attributes["CloudPubSubDeadLetterSourceSubscription"] = name
        copy.attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] = project
        copy.attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] = (
            entry.message.publish_time.ToJsonString()
        )
        self._store(policy.dead_letter_topic, copy)
        self._acked(found, entry)
        return True

    # Snapshots.

    def create_snapshot(self, name, subscription):
        """replay-overview: what is not acknowledged there, and all that is published later."""
        _name(name, "snapshots")
        found = self.subscription(subscription)
        if name in self.snapshots:
            raise Refused("ALREADY_EXISTS", f"Resource already exists: {name}")
        left = [one for one in found.entries.values() if one.state is not ACKED]
        oldest = min((one.message.publish_time.ToSeconds() for one in left), default=time.time())
        expires = oldest + WEEK
        if expires < time.time() + 3600:
            raise Refused("FAILED_PRECONDITION", "the snapshot would expire within an hour")
        kept = [(one.number, one.message) for one in left]
        self.snapshots[name] = (found.settings.topic, next(self.numbers), kept)
        return found.settings.topic, expires

    def delete_snapshot(self, name):
        if name not in self.snapshots:
            raise Refused("NOT_FOUND", f"Resource not found (resource={name})")
        del self.snapshots[name]

    def seek(self, subscription, snapshot):
        """replay-overview: the subscription has the state of the snapshot afterwards."""
        found = self.subscription(subscription)
        if snapshot not in self.snapshots:
            raise Refused("NOT_FOUND", f"Resource not found (resource={snapshot})")
        topic, since, kept = self.snapshots[snapshot]
        if topic != found.settings.topic:
            raise invalid("the snapshot is of another topic")
        later = [(one.number, one.message) for one in found.entries.values() if one.number > since]
        found.waiting, found.entries, found.by_ack, found.keys = [], {}, {}, {}
        found.deadlines, found.pauses = [], []
        for number, message in sorted([*kept, *later], key=lambda pair: pair[0]):
            if found.matches(message.attributes):
                found.add(number, message)


def _name(name, kind):
    found = RESOURCE.fullmatch(name)
    if found is None or found[2] != kind or found[3].startswith("goog"):
        raise invalid(f"Invalid resource name given (name={name})")


def _labels(labels):
    if len(labels) > 64:
        raise invalid("at most 64 labels")
    for key, value in labels.items():
        if not LABEL.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise invalid(f"invalid label {key}: {value}")


def _check_pauses(policy):
    """reference (RetryPolicy): 0 to 600 seconds each, 10 and 600 where they are not given."""
    for name, seconds in (("minimum_backoff", 10), ("maximum_backoff", 600)):
        pause = getattr(policy, name)
        if not policy.HasField(name):
            pause.seconds = seconds
        if not 0 <= pause.ToTimedelta().total_seconds() <= 600:
            raise invalid(f"retry_policy.{name}: 0 to 600 seconds")
    if policy.minimum_backoff.ToTimedelta() > policy.maximum_backoff.ToTimedelta():
        raise invalid("retry_policy: the minimum is above the maximum")


def _check_message(message):
    if not message.data and not message.attributes:
        raise invalid("Some messages in the publish request is empty")
    if message.message_id or message.HasField("publish_time"):
        raise invalid("message_id and publish_time are those of the service")
    if len(message.attributes) > MOST_ATTRIBUTES:
        raise invalid(f"too many attributes: {len(message.attributes)}")
    for key, value in message.attributes.items():
        if not key or len(key.encode()) > LONGEST_KEY or key.startswith("goog"):
            raise invalid(f"invalid attribute key: {key[:40]!r}")
        if len(value.encode()) > LONGEST_VALUE:
            raise invalid(f"the value of attribute {key} is too long")
    if len(message.ordering_key.encode()) > 1024:
        raise invalid("the ordering key is too long")


def _check_ids(name, ack_ids):
    if not ack_ids:
        raise invalid("ack_ids must not be empty")
    if sum(len(one) for one in ack_ids) > ACK_BYTES:
        raise invalid("Request payload size exceeds the limit: 524288 bytes.")
    for ack_id in ack_ids:
        if not re.fullmatch(re.escape(name.rsplit("/")[-1]) + r":\d+", ack_id):
            raise invalid(f"You have passed an invalid ack ID to the service (ack_id={ack_id})")
