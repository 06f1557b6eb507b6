"""The HTTP side of the double: entities as Atom entries, as the vendor's administration client asks.

https://learn.microsoft.com/rest/api/servicebus/ describes the requests. What is not known here is
refused with 400, also single elements of a description. ``/$double`` is for tests: faults.
"""

import json
import re
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import isodate
from tests.doubles.servicebus.entities import (
    RULES,
    Refused,
    Settings,
    Store,
    Subscription,
    Topic,
    not_found,
)
from tests.doubles.servicebus.tokens import is_valid

ATOM = "http://www.w3.org/2005/Atom"
NS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
XSI = "http://www.w3.org/2001/XMLSchema-instance"

# What may be asked for, and what an answer repeats; the rest of an update is read-only.
KNOWN = {
    "QueueDescription": "LockDuration RequiresSession MaxDeliveryCount UserMetadata Status "
    "DeadLetteringOnMessageExpiration AutoDeleteOnIdle EnableBatchedOperations",
    "TopicDescription": "RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow UserMetadata "
    "EnableBatchedOperations",
    "SubscriptionDescription": "LockDuration ForwardTo UserMetadata AutoDeleteOnIdle Status "
    "DefaultRuleDescription EnableBatchedOperations MaxDeliveryCount",
}
READ_ONLY = {
    "SizeInBytes",
    "MessageCount",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "SubscriptionCount",
    "AvailabilityStatus",
    "EntityAvailabilityStatus",
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Management(BaseHTTPRequestHandler):
    """One request. ``namespace``, ``lock`` and ``faults`` are of the server."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, or the client acknowledges 40 ms later
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def _handle(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        with self.server.lock:
            try:
                status, answer = self._answer(body)
            except Refused as refused:
                status = refused.status
                answer = (
                    f"<Error><Code>{status}</Code><Detail>{escape(str(refused))}</Detail></Error>"
                )
        raw = answer.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml;charset=utf-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_PUT = do_DELETE = do_POST = _handle

    def _answer(self, body):
        url = urlsplit(self.path)
        path = unquote(url.path).strip("/")
        faults = self.server.faults
        if path == "$double/faults" and self.command == "POST":
            faults.update(json.loads(body))
            return 200, ""
        if not is_valid(self.headers.get("Authorization")):
            raise Refused("amqp:unauthorized-access", "InvalidSignature: wrong key.", 401)
        if faults.get("throttled", 0) > 0:
            # https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling
            faults["throttled"] -= 1
            raise Refused("com.microsoft:server-busy", "Too many requests.", faults["status"])
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        unknown = query.keys() - {"api-version", "enrich", "$skip", "$top"}
        if unknown:
            raise Refused("", f"the double knows no {sorted(unknown)}")
        return self._route(path, query, body)

    def _route(self, path, query, body):
        if path == "$namespaceinfo" and self.command == "GET":
            return 200, _namespace_info(self.server.tier)
        if path == "$Resources/queues" and self.command == "GET":
            names = sorted(self._space.queues)
            return 200, _feed([self._entry(one) for one in _page(names, query)], query, len(names))
        parts = path.split("/")
        match parts:
            case [name]:
                return self._entity(name.lower(), body)
            case [topic, "subscriptions"] if self.command == "GET":
                found = self._topic(topic).subscriptions
                names = sorted(found)
                page = [self._entry_of_subscription(topic, one) for one in _page(names, query)]
                return 200, _feed(page, query, len(names))
            case [topic, "subscriptions", name]:
                return self._subscription(topic, name.lower(), body)
            case [topic, "subscriptions", name, "rules", rule]:
                return self._rule(topic, name, rule, body)
            case _:
                raise Refused("", f"the double knows no {self.command} {path}")

    @property
    def _space(self):
        return self.server.namespace

    def _topic(self, name):
        if name.lower() not in self._space.topics:
            raise not_found(name)
        return self._space.topics[name.lower()]

    # Queues and topics.

    def _entity(self, name, body):
        space = self._space
        if self.command == "PUT":
            return self._put_entity(name, body)
        if name not in space.queues and name not in space.topics:
            # The service answers a GET of what does not exist with an empty feed.
            if self.command == "GET":
                return 200, _feed([], {}, 0)
            raise not_found(name)
        if self.command == "DELETE":
            space.queues.pop(name, None)
            space.topics.pop(name, None)
            return 200, ""
        return 200, self._entry(name)

    def _put_entity(self, name, body):
        space, (kind, given) = self._space, _description(body)
        exists = name in space.queues or name in space.topics
        is_update = self.headers.get("If-Match") is not None
        _check_name(name, 260)
        if exists and not is_update:
            text = f"SubCode=40900. Conflict: {name} exists."
            raise Refused("com.microsoft:entity-already-exists", text, 409)
        settings = _settings(given)
        if exists:
            old = (space.queues.get(name) or space.topics.get(name)).settings
            _keep_fixed(old, settings)
            old.__dict__.update(settings.__dict__ | {"created": old.created})
        elif kind == "QueueDescription":
            space.queues[name] = Store(space, name, settings)
        else:
            space.topics[name] = Topic(space, name, settings)
        return 200 if exists else 201, self._entry(name)

    def _entry(self, name):
        space = self._space
        if name in space.queues:
            store = space.queues[name]
            rest = _counts(store, store.count(2)) + _created(store.settings)
            return _entry(name, "QueueDescription", store.settings, rest)
        topic = space.topics[name]
        counts = _count_details({"ScheduledMessageCount": len(topic.scheduled)})
        rest = counts + f"<SubscriptionCount>{len(topic.subscriptions)}</SubscriptionCount>"
        return _entry(name, "TopicDescription", topic.settings, rest + _created(topic.settings))

    # Subscriptions and rules.

    def _subscription(self, topic_name, name, body):
        topic = self._topic(topic_name)
        if self.command == "PUT":
            kind, given = _description(body)
            if kind != "SubscriptionDescription":
                raise Refused("", f"{kind} is no subscription")
            _check_name(name, 50)
            exists = name in topic.subscriptions
            if exists and self.headers.get("If-Match") is None:
                text = f"SubCode=40900. Conflict: {name} exists."
                raise Refused("com.microsoft:entity-already-exists", text, 409)
            settings = _settings(given)
            if exists:
                old = topic.subscriptions[name].settings
                old.__dict__.update(settings.__dict__ | {"created": old.created})
            else:
                full = f"{topic.name}/subscriptions/{name}"
                # https://learn.microsoft.com/azure/service-bus-messaging/topic-filters: without
                # a rule of its own a subscription takes everything
                topic.subscriptions[name] = Subscription(
                    Store(self._space, full, settings), settings, {"$Default": "1=1"}
                )
            return 200 if exists else 201, self._entry_of_subscription(topic_name, name)
        if name not in topic.subscriptions:
            if self.command == "GET":
                return 200, _feed([], {}, 0)
            raise not_found(name)
        if self.command == "DELETE":
            del topic.subscriptions[name]
            return 200, ""
        return 200, self._entry_of_subscription(topic_name, name)

    def _entry_of_subscription(self, topic, name):
        one = self._topic(topic).subscriptions[name]
        rest = _counts(one.store, 0) + _created(one.settings)
        return _entry(name, "SubscriptionDescription", one.settings, rest)

    def _rule(self, topic, name, rule, body):
        one = self._topic(topic).subscriptions.get(name.lower())
        if one is None:
            raise not_found(name)
        if self.command == "DELETE":
            if rule not in one.rules:
                raise not_found(rule)
            del one.rules[rule]
            return 200, ""
        if self.command != "PUT":
            raise Refused("", f"the double knows no {self.command} of a rule")
        if rule in one.rules:
            raise Refused("com.microsoft:entity-already-exists", f"{rule} exists", 409)
        root = ET.fromstring(body)
        kind = root.find(f".//{{{NS}}}Filter")
        if kind is None or not kind.get(f"{{{XSI}}}type", "").endswith("SqlFilter"):
            raise Refused("", "the double knows SqlFilter only")
        text = kind.findtext(f"{{{NS}}}SqlExpression")
        if text not in RULES:
            raise Refused("", f"the double knows no filter {text!r}")
        one.rules[rule] = text
        filter_ = (
            f'<Filter i:type="SqlFilter" xmlns:i="{XSI}"><SqlExpression>{escape(text)}</SqlExpression>'
            "<CompatibilityLevel>20</CompatibilityLevel></Filter>"
            f'<Action i:type="EmptyRuleAction" xmlns:i="{XSI}"/>'
        )
        return 201, _atom(rule, "RuleDescription", f"{filter_}<Name>{escape(rule)}</Name>")


def _description(body):
    root = ET.fromstring(body)
    content = root.find(f"{{{ATOM}}}content")
    if content is None or len(content) != 1:
        raise Refused("", "an entry has one description")
    kind = content[0].tag.partition("}")[2]
    if kind not in KNOWN:
        raise Refused("", f"the double knows no {kind}")
    given = {child.tag.partition("}")[2]: child.text or "" for child in content[0]}
    given = {key: text for key, text in given.items() if key not in READ_ONLY}
    unknown = given.keys() - set(KNOWN[kind].split())
    if unknown:
        raise Refused("", f"the double knows no {sorted(unknown)} of {kind}")
    if len(given.get("UserMetadata", "")) > 1024:
        raise Refused("", "UserMetadata has at most 1024 characters")
    return kind, given


def _settings(given):
    made = Settings(description=given)
    if "LockDuration" in given:
        # The service takes 5 seconds to 5 minutes; the double takes shorter ones, for quick tests.
        made.lock_duration = isodate.parse_duration(given["LockDuration"]).total_seconds()
        if not 0 < made.lock_duration <= 300:
            raise Refused("", "LockDuration must be at most 5 minutes")
    made.requires_session = given.get("RequiresSession") == "true"
    made.dead_letter_expired = given.get("DeadLetteringOnMessageExpiration") == "true"
    made.max_delivery_count = int(given.get("MaxDeliveryCount", 10))
    made.status = given.get("Status", "Active")
    if made.status not in ("Active", "ReceiveDisabled"):
        raise Refused("", f"the double knows no status {made.status}")
    if given.get("ForwardTo"):
        made.forward_to = given["ForwardTo"].rpartition("/")[2].lower()
    if given.get("RequiresDuplicateDetection") == "true":
        window = given.get("DuplicateDetectionHistoryTimeWindow", "PT10M")
        made.dedup_window = isodate.parse_duration(window).total_seconds()
        # duplicate-detection: 20 seconds to 7 days
        if not 20 <= made.dedup_window <= 7 * 24 * 3600:
            raise Refused("", "DuplicateDetectionHistoryTimeWindow must be 20 seconds to 7 days")
    return made


def _keep_fixed(old, new):
    # duplicate-detection and message-sessions: fixed when the entity is made
    if (old.requires_session, bool(old.dedup_window)) != (
        new.requires_session,
        bool(new.dedup_window),
    ):
        raise Refused("", "sessions and duplicate detection cannot be changed later", 400)


def _check_name(name, most):
    if not NAME.fullmatch(name) or len(name) > most:
        raise Refused("", f"{name!r} is not a name of at most {most} characters")


def _counts(store, scheduled):
    # Locked messages count as active.
    active = sum(1 for one in store.messages.values() if one.state != 2)
    total = len(store.messages) + len(store.dead.messages)
    figures = {
        "ActiveMessageCount": active,
        "DeadLetterMessageCount": len(store.dead.messages),
        "ScheduledMessageCount": scheduled,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": 0,
    }
    return f"<MessageCount>{total}</MessageCount>" + _count_details(figures)


def _count_details(figures):
    inner = "".join(f"<d:{name}>{number}</d:{name}>" for name, number in figures.items())
    return f'<CountDetails xmlns:d="{COUNTS}">{inner}</CountDetails>'


def _created(settings):
    moment = datetime.fromtimestamp(settings.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"<CreatedAt>{moment}</CreatedAt>"


def _entry(name, kind, settings, rest):
    shown = {"Status": settings.status} | settings.description
    shown.pop("DefaultRuleDescription", None)
    inner = "".join(f"<{key}>{escape(text)}</{key}>" for key, text in shown.items())
    return _atom(name, kind, inner + rest)


def _atom(name, kind, inner):
    return (
        f'<entry xmlns="{ATOM}"><id>{escape(name)}</id><title type="text">{escape(name)}</title>'
        f'<content type="application/xml"><{kind} xmlns="{NS}">{inner}</{kind}></content></entry>'
    )


def _page(names, query):
    start = int(query.get("$skip", 0))
    return names[start : start + int(query.get("$top", 100))]


def _feed(entries, query, total):
    end = int(query.get("$skip", 0)) + len(entries)
    links = '<link rel="self" href="self"/>'
    if end < total:
        top = query.get("$top", 100)
        links += f'<link rel="next" href="http://double/?$skip={end}&amp;$top={top}"/>'
    return f'<feed xmlns="{ATOM}"><title type="text">all</title>{links}{"".join(entries)}</feed>'


def _namespace_info(tier):
    inner = (
        f"<Alias/><CreatedTime>2026-01-01T00:00:00Z</CreatedTime><MessagingSKU>{tier}</MessagingSKU>"
        "<ModifiedTime>2026-01-01T00:00:00Z</ModifiedTime><Name>double</Name>"
        "<NamespaceType>Messaging</NamespaceType>"
    )
    return _atom("double", "NamespaceInfo", inner)
