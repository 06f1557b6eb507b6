"""What a namespace of Service Bus holds, without the wire: queues, topics, locks, sessions, time.

Every rule names the page of the vendor it comes from. DOCS stands for
https://learn.microsoft.com/azure/service-bus-messaging/ in the comments.
"""

import heapq
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count

from proton import Message, symbol, timestamp

DEAD = "/$deadletterqueue"
MAX_MESSAGE = 256 * 1024  # Standard tier. DOCS service-bus-quotas


class Refused(Exception):
    """The service says no: an AMQP condition, an HTTP status and a text."""

    def __init__(self, condition, text, status=400):
        super().__init__(text)
        self.condition, self.status = condition, status


def not_found(name):
    return Refused("amqp:not-found", f"The messaging entity {name!r} could not be found.", 404)


def lock_lost():
    # DOCS message-transfers-locks-settlement: settling after the lock expired fails.
    return Refused("com.microsoft:message-lock-lost", "The lock supplied is invalid.", 410)


@dataclass(eq=False)
class Stored:
    message: Message
    sequence: int
    enqueued: float
    expires: float | None
    session: str | None
    due: float | None = None  # scheduled
    deliveries: int = 0  # that failed
    token: str | None = None
    locked_until: float = 0.0
    deferred: bool = False
    gone: bool = False

    @property
    def state(self):
        # x-opt-message-state: DOCS message-browsing (active 0, deferred 1, scheduled 2)
        return 1 if self.deferred else 2 if self.due is not None else 0


class Store:
    """Messages in a queue, a subscription or a dead-letter sub-queue."""

    def __init__(self, namespace, name, settings, *, is_dead=False):
        self.namespace, self.name, self.settings, self.is_dead = namespace, name, settings, is_dead
        self.messages = OrderedDict()  # sequence -> Stored
        self.ready = {}  # session or None -> heap of sequences
        self.scheduled = []
        self.sessions = {}  # session -> [owner, until]
        self.dead = None if is_dead else Store(namespace, name + DEAD, settings, is_dead=True)

    @property
    def has_sessions(self):
        return self.settings.requires_session and not self.is_dead

    # In.

    def put(self, message, *, due=None, now=None):
        now = time.time() if now is None else now
        session = message.group_id or None
        stored = Stored(message, next(self.namespace.sequences), now, None, session)
        if self.has_sessions and session is None:
            # DOCS service-bus-dead-letter-queues: "Session ID is null"
            self._bury(stored, "Session ID is null", "Session enabled entity needs a session id.")
            return stored
        self.messages[stored.sequence] = stored
        if due is not None and due > now:
            stored.due = due
            heapq.heappush(self.scheduled, (due, stored.sequence))
        else:
            self._enqueue(stored, now)
        return stored

    def _enqueue(self, stored, now):
        stored.due, stored.enqueued = None, now
        # DOCS message-expiration: the time to live counts from the time of enqueueing, and is
        # not observed in the dead-letter queue.
        if stored.message.ttl and not self.is_dead:
            stored.expires = now + stored.message.ttl
        self._make_ready(stored)

    def _make_ready(self, stored):
        key = stored.session if self.has_sessions else None
        heapq.heappush(self.ready.setdefault(key, []), stored.sequence)
        self.namespace.news.add(self)

    def cancel(self, sequences):
        # DOCS message-sequencing: a scheduled message can be cancelled by its sequence number.
        for sequence in sequences:
            stored = self.messages.get(sequence)
            if stored is None or stored.due is None:
                raise Refused("com.microsoft:message-not-found", f"no scheduled {sequence}", 404)
        for sequence in sequences:
            self._remove(self.messages[sequence])

    # Out.

    def next(self, session=None):
        """The next one that can be delivered, in order of its sequence; not locked yet."""
        heap = self.ready.get(session, [])
        while heap:
            stored = self.messages.get(heap[0])
            if stored is None or stored.token or stored.deferred or stored.due is not None:
                heapq.heappop(heap)
            elif stored.expires is not None and stored.expires <= time.time():
                heapq.heappop(heap)
                self._expire(stored)
            else:
                return stored
        return None

    def lock(self, stored):
        # DOCS message-transfers-locks-settlement: peek-lock. The token is the delivery tag.
        heapq.heappop(self.ready[stored.session if self.has_sessions else None])
        stored.token = secrets.token_hex(8)  # 16 characters: as many bytes as a GUID
        stored.locked_until = time.time() + self.settings.lock_duration
        self.namespace.locks[stored.token] = (self, stored)
        return stored.token

    def take(self, stored):
        """Receive and delete. DOCS message-transfers-locks-settlement"""
        heapq.heappop(self.ready[stored.session if self.has_sessions else None])
        self._remove(stored)

    # Settling.

    def complete(self, stored):
        self._remove(stored)

    def release(self, stored, *, failed, properties=None):
        self._unlock(stored)
        if properties:
            stored.message.properties = {**(stored.message.properties or {}), **properties}
        if failed:
            stored.deliveries += 1
            # DOCS service-bus-dead-letter-queues: maximum delivery count
            if stored.deliveries >= self.settings.max_delivery_count and not self.is_dead:
                text = "Message could not be consumed after the maximum of delivery attempts."
                self.bury(stored, "MaxDeliveryCountExceeded", text)
                return
        self._make_ready(stored)

    def defer(self, stored):
        self._unlock(stored)  # DOCS message-deferral
        stored.deferred = True

    def bury(self, stored, reason, text, properties=None):
        if self.is_dead:
            raise Refused("amqp:not-allowed", "A dead letter cannot be dead-lettered.")
        self._remove(stored)
        self._bury(stored, reason, text, properties)

    def _bury(self, stored, reason, text, properties=None):
        # DOCS service-bus-dead-letter-queues: two properties are added
        message = stored.message
        message.properties = {
            **(message.properties or {}),
            **(properties or {}),
            "DeadLetterReason": reason,
            "DeadLetterErrorDescription": text,
        }
        self.dead.put(message)

    def _expire(self, stored):
        # DOCS message-expiration: dropped, or dead-lettered where the entity says so
        self._remove(stored)
        if self.settings.dead_letter_expired and not self.is_dead:
            self._bury(stored, "TTLExpiredException", "The message expired and was dead lettered.")

    def _unlock(self, stored):
        self.namespace.locks.pop(stored.token, None)
        stored.token = None

    def _remove(self, stored):
        self._unlock(stored)
        stored.gone = True
        self.messages.pop(stored.sequence, None)

    # Sessions. DOCS message-sessions

    def free_session(self):
        """A session with messages that nobody has locked, the one with the oldest first."""
        found = [
            (first.sequence, session)
            for session in list(self.ready)
            if session not in self.sessions and (first := self.next(session)) is not None
        ]
        return min(found)[1] if found else None

    def accept_session(self, session, owner):
        if session in self.sessions:
            text = f"The requested session {session!r} cannot be accepted. It may be locked."
            raise Refused("com.microsoft:session-cannot-be-locked", text)
        self.sessions[session] = [owner, time.time() + self.settings.lock_duration]
        return self.sessions[session][1]

    def renew_session(self, session):
        if session not in self.sessions:
            raise Refused("com.microsoft:session-lock-lost", "The session lock was lost.", 410)
        self.sessions[session][1] = time.time() + self.settings.lock_duration
        return self.sessions[session][1]

    def leave_session(self, session, *, owner=None):
        """The link closed or the lock ran out: its locked messages are free again."""
        held = self.sessions.get(session)
        # Not by identity: proton makes an object of the same link anew for every event.
        if held is None or (owner is not None and held[0] != owner):
            return
        del self.sessions[session]
        for stored in list(self.messages.values()):
            if stored.session == session and stored.token:
                self.release(stored, failed=True)
        self.namespace.news.add(self)

    # Time.

    def tick(self, now):
        while self.scheduled and self.scheduled[0][0] <= now:
            _, sequence = heapq.heappop(self.scheduled)
            stored = self.messages.get(sequence)
            if stored is not None and stored.due is not None:
                self._enqueue(stored, now)
        for session, (_, until) in list(self.sessions.items()):
            if until <= now:
                self.leave_session(session)
        for key in self.ready:
            self.next(key)  # expires what is first

    def count(self, state=0):
        return sum(stored.state == state for stored in self.messages.values())


@dataclass(eq=False)
class Settings:
    """The description of an entity: what the driver may ask for; management.py refuses the rest."""

    description: dict = field(default_factory=dict)  # element -> text, as it was given
    lock_duration: float = 60.0  # DOCS message-transfers-locks-settlement: one minute by default
    requires_session: bool = False
    max_delivery_count: int = 10  # DOCS service-bus-dead-letter-queues
    dead_letter_expired: bool = False
    forward_to: str | None = None
    dedup_window: float = 0.0
    status: str = "Active"
    created: float = field(default_factory=time.time)


@dataclass(eq=False)
class Subscription:
    store: Store
    settings: Settings
    rules: dict = field(default_factory=dict)


class Topic:
    def __init__(self, namespace, name, settings):
        self.namespace, self.name, self.settings = namespace, name, settings
        self.subscriptions = {}
        self.scheduled = []
        self.seen = OrderedDict()  # message id -> until

    def publish(self, message, due):
        now = time.time()
        if self._is_duplicate(message.id, now):
            return None
        if due is not None and due > now:
            sequence = next(self.namespace.sequences)
            heapq.heappush(self.scheduled, (due, sequence, message))
            return sequence
        self._spread(message)
        return next(self.namespace.sequences)

    def _is_duplicate(self, identity, now):
        # DOCS duplicate-detection: accepted and dropped when the id was seen in the window
        window = self.settings.dedup_window
        if not window or identity is None:
            return False
        while self.seen and next(iter(self.seen.values())) <= now:
            self.seen.popitem(last=False)
        if identity in self.seen:
            return True
        self.seen[identity] = now + window
        return False

    def _spread(self, message):
        for one in self.subscriptions.values():
            # DOCS topic-filters: a copy for each subscription with a rule that matches
            if any(matches(rule, message) for rule in one.rules.values()):
                self.namespace.deliver(one.store, copy(message))

    def tick(self, now):
        while self.scheduled and self.scheduled[0][0] <= now:
            self._spread(heapq.heappop(self.scheduled)[2])


RULES = {
    # DOCS service-bus-messaging-sql-filter; only these are known here, others are refused
    "1=1": lambda message: True,
    "1=0": lambda message: False,
    "sys.SessionId IS NULL": lambda message: not message.group_id,
    "sys.SessionId IS NOT NULL": lambda message: bool(message.group_id),
}


def matches(rule, message):
    return RULES[rule](message)


def copy(message):
    other = Message()
    other.decode(bytes(message.encode()))
    return other


class Namespace:
    """All of it. Names are not case-sensitive (DOCS service-bus-quotas)."""

    def __init__(self):
        self.queues, self.topics = {}, {}
        self.locks = {}
        self.sequences = count(1)
        self.news = set()  # stores with something to deliver

    def deliver(self, store, message, hops=0):
        target = store.settings.forward_to
        if target is None or store.is_dead:
            return store.put(message)
        # DOCS service-bus-auto-forwarding: at most four hops; a missing target keeps it here
        if hops >= 4:
            return store.put(message)
        other = self.queues.get(target)
        return store.put(message) if other is None else self.deliver(other, message, hops + 1)

    def store(self, path):
        """The store of an AMQP address such as q, t/subscriptions/s, q/$deadletterqueue."""
        path = path.lower()
        is_dead = path.endswith(DEAD)
        path = path.removesuffix(DEAD)
        if "/subscriptions/" in path:
            topic, _, name = path.partition("/subscriptions/")
            one = self.topics.get(topic) and self.topics[topic].subscriptions.get(name)
            found = one and one.store
        else:
            found = self.queues.get(path)
        if not found:
            raise not_found(path)
        return found.dead if is_dead else found

    def stores(self):
        yield from self.queues.values()
        for topic in self.topics.values():
            for one in topic.subscriptions.values():
                yield one.store

    def send(self, path, message, due=None):
        path = path.lower()
        if path in self.topics:
            return self.topics[path].publish(message, due)
        store = self.store(path)
        if store.is_dead:
            raise Refused("amqp:not-allowed", "Nothing can be sent to a dead-letter queue.")
        if store.has_sessions and not message.group_id:
            # DOCS message-sessions: a session entity refuses a message without a session id
            raise Refused("amqp:not-allowed", "The SessionId was not set on a message.")
        return store.put(message, due=due).sequence

    def locked(self, token, store=None):
        found = self.locks.get(token)
        if found is None or (store is not None and found[0] is not store):
            raise lock_lost()
        if found[0].has_sessions:
            if found[1].session not in found[0].sessions:
                raise lock_lost()
        elif found[1].locked_until <= time.time():
            found[0].release(found[1], failed=True)
            raise lock_lost()
        return found

    def renew(self, token, store):
        _, stored = self.locked(token, store)
        stored.locked_until = time.time() + store.settings.lock_duration
        return stored.locked_until

    def tick(self):
        now = time.time()
        for store, stored in list(self.locks.values()):
            # DOCS message-transfers-locks-settlement: an expired lock counts as a delivery
            if not store.has_sessions and stored.locked_until <= now:
                store.release(stored, failed=True)
        for topic in self.topics.values():
            topic.tick(now)
        for store in list(self.stores()):
            store.tick(now)
            self._forward(store)

    def _forward(self, store):
        target = store.settings.forward_to
        while target in self.queues and (stored := store.next()) is not None:
            store.take(stored)
            self.deliver(store, stored.message)


def annotated(stored, *, peeked=False):
    """The message as it goes out: sequence number, times, lock. DOCS service-bus-amqp-protocol-guide"""
    message = stored.message
    notes = {
        key: value
        for key, value in (message.annotations or {}).items()
        if not str(key).startswith("x-opt-lock")
    }
    notes[symbol("x-opt-sequence-number")] = stored.sequence
    notes[symbol("x-opt-enqueued-time")] = timestamp(int(stored.enqueued * 1000))
    if peeked:
        notes[symbol("x-opt-message-state")] = stored.state
    else:
        notes[symbol("x-opt-locked-until")] = timestamp(int(stored.locked_until * 1000))
    message.annotations = notes
    message.delivery_count = stored.deliveries
    return bytes(message.encode())
