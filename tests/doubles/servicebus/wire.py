"""The AMQP side of the double: links, transfers, dispositions, $cbs and $management."""

import struct
import time
import uuid

from proton import (
    UNDESCRIBED,
    Array,
    Condition,
    Data,
    Delivery,
    Endpoint,
    Handler,
    Link,
    Message,
    int32,
    symbol,
    timestamp,
)
from tests.doubles.servicebus.entities import MAX_MESSAGE, Refused, annotated, not_found
from tests.doubles.servicebus.tokens import is_valid

TICK = 0.02  # seconds
CREDIT = 200
TICKS_AT_EPOCH = 621355968000000000  # .NET: tenths of microseconds since the year 1
ACCEPT_SECONDS = 60.0  # how long a client waits for a session by default

BUSY = Refused("com.microsoft:server-busy", "The service is busy; try again in 10 seconds.", 503)
SETTLED = {Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED}


class Wire(Handler):
    """Speaks AMQP 1.0 on a listening port. ``lock`` guards the namespace (HTTP is a thread)."""

    def __init__(self, namespace, lock, port, faults):
        super().__init__()
        self.namespace, self.lock, self.faults = namespace, lock, faults
        self._address = f"127.0.0.1:{port}"
        self._readers = {}  # store -> links that deliver from it
        self._sources = {}  # link -> (store, session)
        self._waiting = []  # [link, store, until]: wait for a session
        self._replies = {}  # (connection, address) -> link
        self._authorized = set()  # connections with a valid token
        self._connections = set()
        self._sent = {}  # token -> link

    # Life.

    def on_reactor_init(self, event):
        self._acceptor = event.container.listen(self._address)
        event.container.schedule(TICK, self)

    def on_timer_task(self, event):
        with self.lock:
            self.namespace.tick()
            self._disconnect_if_asked()
            self._cut_readers_if_asked()
            self._drop_dead_links()
            self._accept_sessions()
            self._pump_news()
        event.container.schedule(TICK, self)

    def _disconnect_if_asked(self):
        if self.faults.pop("disconnect", None):
            for connection in list(self._connections):
                connection.condition = _condition(
                    Refused("amqp:connection:forced", "asked by a test")
                )
                connection.close()

    def _cut_readers_if_asked(self):
        # DOCS service-bus-throttling: a link may be detached so; the client attaches again
        if self.faults.pop("cut_readers", None):
            for link in list(self._sources):
                self._detach(link)
                link.condition = _condition(BUSY)
                link.close()

    def on_connection_init(self, event):
        self._connections.add(event.connection)

    def on_connection_remote_open(self, event):
        self._connections.add(event.connection)
        event.connection.container = "servicebus-double"
        event.connection.open()

    def on_connection_remote_close(self, event):
        event.connection.close()
        self._forget(event.connection)

    def on_transport_closed(self, event):
        self._forget(event.connection)

    def on_session_remote_open(self, event):
        event.session.open()

    def on_session_remote_close(self, event):
        event.session.close()

    def _forget(self, connection):
        with self.lock:
            self._connections.discard(connection)
            self._authorized.discard(connection)
            for link in [one for one in self._sources if one.connection == connection]:
                self._detach(link)
            self._waiting = [one for one in self._waiting if one[0].connection != connection]
            self._replies = {key: one for key, one in self._replies.items() if key[0] != connection}

    # Links.

    def on_link_remote_open(self, event):
        link = event.link
        with self.lock:
            try:
                self._attach(link)
            except Refused as refused:
                _refuse(link, refused)

    def _attach(self, link):
        remote = link.remote_source if link.is_sender else link.remote_target
        path = _path(remote.address)
        link.source.address = link.remote_source.address
        link.target.address = link.remote_target.address
        if path == "$cbs" or path.endswith("/$management"):
            if path != "$cbs":
                self._demand_token(link)
                self._entity(path.removesuffix("/$management"))
            if link.is_sender:
                self._replies[link.connection, path] = link
            link.open()
            if link.is_receiver:
                link.flow(CREDIT)
            return
        self._demand_token(link)
        if link.is_receiver:
            self._entity(path)
            link.max_message_size = MAX_MESSAGE
            link.open()
            link.flow(CREDIT)
        else:
            self._attach_reader(link, path)

    def _demand_token(self, link):
        # DOCS service-bus-amqp-protocol-guide: claims-based security, $cbs before any link
        if link.connection not in self._authorized:
            raise Refused("amqp:unauthorized-access", "Unauthorized access. A token is needed.")

    def _entity(self, path):
        if path.lower() not in self.namespace.topics:
            self.namespace.store(path)

    def _attach_reader(self, link, path):
        self._be_busy("busy_readers")
        store = self.namespace.store(path)
        if store.settings.forward_to is not None and not store.is_dead:
            # DOCS service-bus-auto-forwarding: nobody receives from an entity that forwards
            raise Refused(
                "amqp:not-allowed", "Cannot create a receiver on an entity that forwards."
            )
        _demand_receivable(store)
        wanted = _filters(link)
        unknown = wanted.keys() - {"com.microsoft:session-filter"}
        if unknown:
            raise Refused("amqp:not-implemented", f"the double knows no filter {sorted(unknown)}")
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        if store.has_sessions != bool(wanted):
            text = "It is not possible for an entity that requires sessions to create a plain receiver."
            raise Refused("amqp:not-allowed", text)
        if not store.has_sessions:
            self._sources[link] = (store, None)
            self._readers.setdefault(store, []).append(link)
            link.open()
        elif wanted["com.microsoft:session-filter"] is None:
            seconds = _session_wait(link)
            self._waiting.append([link, store, time.time() + seconds])
            self._accept_sessions()
        else:
            self._begin_session(link, store, str(wanted["com.microsoft:session-filter"]))

    def _begin_session(self, link, store, session):
        # DOCS message-sessions, service-bus-amqp-protocol-guide: the attach answers with the
        # session that was locked, and until when
        until = store.accept_session(session, link)
        link.source.filter.clear()
        link.source.filter.put_dict({symbol("com.microsoft:session-filter"): session})
        ticks = TICKS_AT_EPOCH + int(until * 10_000_000)
        link.properties = {symbol("com.microsoft:locked-until-utc"): ticks}
        self._sources[link] = (store, session)
        self._readers.setdefault(store, []).append(link)
        link.open()

    def _accept_sessions(self):
        now, still = time.time(), []
        for link, store, until in self._waiting:
            session = store.free_session()
            if session is not None:
                self._begin_session(link, store, session)
            elif until <= now:
                _refuse(link, Refused("com.microsoft:timeout", "No session is available."))
            else:
                still.append([link, store, until])
        self._waiting = still

    def on_link_remote_close(self, event):
        with self.lock:
            self._detach(event.link)
            event.link.close()
        self._pump_all()

    on_link_remote_detach = on_link_remote_close

    def _detach(self, link):
        self._waiting = [one for one in self._waiting if one[0] != link]
        store, session = self._sources.pop(link, (None, None))
        if store is None:
            return
        self._readers[store].remove(link)
        # DOCS message-transfers-locks-settlement: locks outlive their link, except of sessions
        if session is not None:
            store.leave_session(session, owner=link)

    def _drop_dead_links(self):
        """Entities that were deleted or disabled close their links. DOCS entity-suspend"""
        for link, (store, session) in list(self._sources.items()):
            try:
                if self.namespace.store(store.name) is not store:
                    raise not_found(store.name)
                _demand_receivable(store)
                if session is not None and store.sessions.get(session, [None])[0] != link:
                    raise Refused("com.microsoft:session-lock-lost", "The session lock was lost.")
            except Refused as refused:
                self._detach(link)
                link.condition = _condition(refused)
                link.close()

    # Out.

    def on_link_flow(self, event):
        link = event.link
        if link.is_sender and link in self._sources:
            with self.lock:
                self._pump(link)
                if link.drain_mode:
                    link.drained()

    def _pump_all(self):
        with self.lock:
            self._pump_news()

    def _pump_news(self):
        news, self.namespace.news = self.namespace.news, set()
        for store in news:
            links = self._readers.get(store, [])
            # One message each in turn, so that members of a group share.
            while sum(self._pump(link, most=1) for link in list(links)):
                links.append(links.pop(0))

    def _pump(self, link, most=1_000_000):
        store, session = self._sources[link]
        sent = 0
        while sent < most and link.credit > 0 and link.state & Endpoint.LOCAL_ACTIVE:
            stored = store.next(session)
            if stored is None:
                break
            sent += 1
            if link.remote_snd_settle_mode == Link.SND_SETTLED:
                store.take(stored)
                self._transfer(link, uuid.uuid4().hex[:16], stored).settle()
            else:
                token = store.lock(stored)
                self._sent[token] = link
                self._transfer(link, token, stored)
        return sent

    def _transfer(self, link, tag, stored):
        delivery = link.delivery(tag)
        link.send(annotated(stored))
        link.advance()
        return delivery

    # In.

    def on_delivery(self, event):
        delivery, link = event.delivery, event.link
        if link.is_sender:
            if delivery.updated and delivery.remote_state in SETTLED:
                with self.lock:
                    self._disposed(link, delivery)
                self._pump_all()
        elif delivery.readable and not delivery.partial:
            raw = bytes(link.recv(delivery.pending) or b"")
            link.advance()
            with self.lock:
                self._came(link, delivery, raw)
            if link.credit < CREDIT // 2:
                link.flow(CREDIT - link.credit)
            self._pump_all()

    def _came(self, link, delivery, raw):
        path = _path(link.remote_target.address)
        if path == "$cbs" or path.endswith("/$management"):
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
            self._answer(link.connection, path, _decoded(raw))
            return
        try:
            self._take_fault()
            self._send(path, raw)
        except Refused as refused:
            delivery.local.condition = _condition(refused)
            delivery.update(Delivery.REJECTED)
        else:
            delivery.update(Delivery.ACCEPTED)
        delivery.settle()

    def _be_busy(self, fault):
        # DOCS service-bus-throttling: any operation can be answered so
        if self.faults.get(fault, 0) > 0:
            self.faults[fault] -= 1
            raise BUSY

    def _take_fault(self):
        self._be_busy("busy")
        if self.faults.get("full", 0) > 0:
            # DOCS service-bus-quotas: the size of an entity
            self.faults["full"] -= 1
            raise Refused("amqp:resource-limit-exceeded", "The maximum entity size was reached.")

    def _send(self, path, raw):
        if len(raw) > MAX_MESSAGE:
            text = f"The received message is larger than {MAX_MESSAGE} bytes."
            raise Refused("amqp:link:message-size-exceeded", text)
        inner = _batch(raw)
        for one in inner if inner is not None else [raw]:
            message = _decoded(one)
            self.namespace.send(path, message, _due(message))

    def _disposed(self, link, delivery):
        token, state = delivery.tag, delivery.remote_state
        try:
            store, stored = self.namespace.locked(token, self._sources[link][0])
            _settle(store, stored, delivery)
        except Refused as refused:
            delivery.local.condition = _condition(refused)
            delivery.update(Delivery.REJECTED)
        else:
            # The service answers with the outcome it applied.
            if state == Delivery.MODIFIED:
                delivery.local.failed = delivery.remote.failed
                delivery.local.undeliverable = delivery.remote.undeliverable
            delivery.update(state)
        self._sent.pop(token, None)
        delivery.settle()

    # Requests. DOCS service-bus-amqp-request-response

    def _answer(self, connection, path, request):
        properties = request.properties or {}
        operation = str(properties.get("operation"))
        if path == "$cbs":
            answer = self._put_token(connection, operation, request)
        else:
            entity = path.removesuffix("/$management")
            try:
                try:
                    self._be_busy("busy_requests")
                    body = self._operation(operation, entity, request.body, properties)
                except (TypeError, KeyError, AttributeError, ValueError) as error:
                    raise Refused("com.microsoft:argument-error", repr(error)) from error
                code = 204 if body is None else 200
                answer = Message(
                    body=body, properties={"statusCode": int32(code), "statusDescription": "OK"}
                )
            except Refused as refused:
                answer = Message(
                    properties={
                        "statusCode": int32(refused.status),
                        "statusDescription": str(refused),
                        "errorCondition": symbol(refused.condition),
                    }
                )
        answer.correlation_id = request.id
        link = self._replies.get((connection, path))
        if link is not None:
            answer.address = request.reply_to
            link.delivery(uuid.uuid4().hex[:16])
            link.send(bytes(answer.encode()))
            link.advance()

    def _put_token(self, connection, operation, request):
        code, text = 202, "Accepted"
        if operation != "put-token":
            code, text = 501, f"the double knows no {operation}"
        elif not is_valid(request.body):
            code, text = 401, "InvalidSignature: The token has an invalid signature."
        else:
            self._authorized.add(connection)
        return Message(properties={"status-code": int32(code), "status-description": text})

    def _operation(self, operation, entity, body, properties):
        known = {
            "com.microsoft:renew-lock": self._renew,
            "com.microsoft:renew-session-lock": self._renew_session,
            "com.microsoft:update-disposition": self._update,
            "com.microsoft:peek-message": self._peek,
            "com.microsoft:schedule-message": self._schedule,
            "com.microsoft:cancel-scheduled-message": self._cancel,
        }
        if operation not in known:
            raise Refused("amqp:not-implemented", f"the double knows no {operation}", 501)
        return known[operation](entity, {str(key): value for key, value in body.items()})

    def _renew(self, entity, body):
        _only(body, {"lock-tokens"})
        store = self.namespace.store(entity)
        tokens = [_token(one) for one in body["lock-tokens"]]
        for token in tokens:
            self.namespace.locked(token, store)  # all or none
        until = [int(self.namespace.renew(token, store) * 1000) for token in tokens]
        return {"expirations": Array(UNDESCRIBED, Data.TIMESTAMP, *until)}

    def _renew_session(self, entity, body):
        _only(body, {"session-id"})
        until = self.namespace.store(entity).renew_session(str(body["session-id"]))
        return {"expiration": timestamp(int(until * 1000))}

    def _update(self, entity, body):
        _only(
            body,
            {
                "disposition-status",
                "lock-tokens",
                "session-id",
                "deadletter-reason",
                "deadletter-description",
                "properties-to-modify",
            },
        )
        store, status = self.namespace.store(entity), str(body["disposition-status"])
        tokens = [_token(one) for one in body["lock-tokens"]]
        found = [self.namespace.locked(token, store)[1] for token in tokens]
        changed = {str(key): one for key, one in (body.get("properties-to-modify") or {}).items()}
        if status not in {"completed", "abandoned", "suspended", "defered"}:
            raise Refused("amqp:not-implemented", f"the double knows no disposition {status}", 501)
        for stored in found:
            if status == "completed":
                store.complete(stored)
            elif status == "abandoned":
                store.release(stored, failed=True, properties=changed)
            elif status == "defered":
                store.defer(stored)
            else:
                reason = str(body.get("deadletter-reason") or "")
                store.bury(stored, reason, str(body.get("deadletter-description") or ""), changed)
        return {}

    def _peek(self, entity, body):
        _only(body, {"from-sequence-number", "message-count", "session-id"})
        store, session = self.namespace.store(entity), body.get("session-id")
        found = [
            stored
            for sequence, stored in sorted(store.messages.items())
            if sequence >= body["from-sequence-number"]
            and (session is None or stored.session == session)
        ][: body["message-count"]]
        if not found:
            return None
        return {"messages": [{"message": annotated(stored, peeked=True)} for stored in found]}

    def _schedule(self, entity, body):
        _only(body, {"messages"})
        sequences = []
        for one in body["messages"]:
            message = _decoded(bytes(one["message"]))
            sequences.append(self.namespace.send(entity, message, _due(message)))
        return {"sequence-numbers": Array(UNDESCRIBED, Data.LONG, *sequences)}

    def _cancel(self, entity, body):
        _only(body, {"sequence-numbers"})
        self.namespace.store(entity).cancel(list(body["sequence-numbers"]))
        return {}


def _settle(store, stored, delivery):
    """DOCS service-bus-amqp-protocol-guide: what the outcomes of a disposition mean."""
    state = delivery.remote_state
    if state == Delivery.ACCEPTED:
        store.complete(stored)
    elif state == Delivery.REJECTED:
        condition = delivery.remote.condition
        info = {str(k): v for k, v in ((condition.info if condition else None) or {}).items()}
        text = info.get("DeadLetterErrorDescription") or ""
        store.bury(stored, str(info.get("DeadLetterReason") or ""), str(text))
    elif state == Delivery.MODIFIED and delivery.remote.undeliverable:
        store.defer(stored)
    else:
        store.release(stored, failed=state == Delivery.MODIFIED)


def _demand_receivable(store):
    if store.settings.status in ("Disabled", "ReceiveDisabled"):
        text = "The messaging entity is currently disabled."
        raise Refused("com.microsoft:entity-disabled", text, 403)


def _condition(refused):
    # With all three parts, as the service sends it: the client looks at each.
    return Condition(refused.condition, str(refused), {symbol("tracking-id"): "double"})


def _refuse(link, refused):
    link.source.address, link.target.address = (
        link.remote_source.address,
        link.remote_target.address,
    )
    link.open()
    link.condition = _condition(refused)
    link.close()


def _path(address):
    text = str(address or "")
    if "://" in text:
        text = text.partition("://")[2].partition("/")[2]
    return text


def _filters(link):
    found, data = {}, link.remote_source.filter
    data.rewind()
    if data.next():
        for key, value in (data.get_dict() or {}).items():
            plain = getattr(value, "value", value)  # described values
            found[str(key)] = None if plain is None else str(plain)
    return found


def _session_wait(link):
    given = {str(key): value for key, value in (link.remote_properties or {}).items()}
    wait = given.get("com.microsoft:timeout")
    return ACCEPT_SECONDS if wait is None else int(wait) / 1000


def _only(body, known):
    unknown = body.keys() - known
    if unknown:
        raise Refused("amqp:not-implemented", f"the double knows no {sorted(unknown)}", 501)


def _token(value):
    """A lock token is the delivery tag as a GUID, whose first parts are little-endian."""
    return uuid.UUID(str(value)).bytes_le.decode("latin-1")


def _due(message):
    # DOCS message-sequencing: the annotation of a scheduled message
    notes = message.annotations or {}
    for key, value in notes.items():
        if str(key) == "x-opt-scheduled-enqueue-time" and value is not None:
            return int(value) / 1000
    return None


def _decoded(raw):
    message = Message()
    message.decode(raw)
    if isinstance(message.body, memoryview):
        message.body = bytes(message.body)
        message.inferred = True  # a data section again
    return message


def _batch(raw):
    """The messages in a batch (message format 0x80013700), or None for a plain message.

    proton does not tell the format of a transfer. A batch has nothing but data sections, and
    each is a whole message; no body of a test looks like one by chance.
    """
    try:
        parts = [bytes(part) for code, part in _sections(raw) if code == 0x75]
        if not parts or not all(_is_message(part) for part in parts):
            return None
    except (ValueError, struct.error, IndexError):
        return None
    return parts


def _is_message(raw):
    return raw[:2] == b"\x00\x53" and bool(
        [code for code, _ in _sections(raw) if 0x70 <= code <= 0x78]
    )


def _sections(raw):
    """(descriptor, content) of each section; content only of data sections."""
    view, at = memoryview(raw), 0
    while at < len(raw):
        if view[at] != 0x00:
            raise ValueError("not a section")
        if view[at + 1] == 0x53:
            code, at = view[at + 2], at + 3
        elif view[at + 1] == 0x80:
            code, at = struct.unpack(">Q", view[at + 2 : at + 10])[0], at + 10
        else:
            raise ValueError("not a descriptor")
        kind, at = view[at], at + 1
        if kind == 0x45:
            size = 0
        elif kind in (0xA0, 0xA1, 0xC0, 0xC1):
            size, at = view[at], at + 1
        elif kind in (0xB0, 0xB1, 0xD0, 0xD1):
            size, at = struct.unpack(">I", view[at : at + 4])[0], at + 4
        else:
            raise ValueError("not of a section")
        if at + size > len(raw):
            raise ValueError("too short")
        yield code, view[at : at + size]
        at += size
