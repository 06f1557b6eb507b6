"""``python -m tests.doubles.sqs``: moto's SQS, made strict; serves until its input ends, tells its port.

moto is lenient where SQS is not. What is corrected here cites the page of AWS beside it (names of
pages in https://docs.aws.amazon.com/AWSSimpleQueueService/latest/).
"""

import json
import re
import sys
import threading
import time

from moto.server import DomainDispatcherApplication, create_backend_app
from moto.sqs import models
from moto.sqs.exceptions import ReceiptHandleIsInvalid, SQSException
from werkzeug.serving import WSGIRequestHandler, make_server

LARGEST = 1024 * 1024
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LOCK = threading.RLock()
FAULTS = []


class MessageNotInflight(ReceiptHandleIsInvalid):
    pass


class StrictBackend(models.SQSBackend):
    def receive_message(self, queue_name, count, wait_seconds_timeout, *rest):
        """APIReference/API_ReceiveMessage: a message is given to one receiver at a time.

        moto's own loop takes no lock, and looks once a second for leases that ended.
        """
        until = time.monotonic() + wait_seconds_timeout
        while True:
            with LOCK:
                found = super().receive_message(queue_name, count, 0, *rest)
            if found or time.monotonic() >= until:
                return found
            time.sleep(0.02)

    def is_message_valid_based_on_retention_period(self, queue_name, message):
        """The same as moto's, which counts the whole queue for it."""
        kept = self.get_queue(queue_name).message_retention_period
        return message.sent_timestamp / 1000 + kept > time.time()

    def _validate_message(self, queue, message_body, *rest, **more):
        """APIReference/API_SendMessage: at least one character, and only those of XML."""
        if not message_body or NOT_XML.search(message_body):
            raise SQSException("InvalidMessageContents", "Invalid characters found.")
        super()._validate_message(queue, message_body, *rest, **more)

    def send_message(self, queue_name, message_body, message_attributes=None, **more):
        """SQSDeveloperGuide/sqs-message-metadata: ten attributes, and they count for the size."""
        attributes = message_attributes or {}
        if len(attributes) > 10:
            raise SQSException("InvalidParameterValue", "Number of message attributes exceeds 10.")
        size = len(message_body.encode())
        for name, value in attributes.items():
            text = value.get("StringValue")
            if text is not None and (not text or NOT_XML.search(text)):
                raise SQSException("InvalidParameterValue", f"The attribute {name} is not valid.")
            if re.match(r"(?i)aws\.|amazon\.", name) or ".." in name or name.strip(".") != name:
                raise SQSException("InvalidParameterValue", f"The name {name} is not valid.")
            size += len(name) + len(value["DataType"]) + len((text or "").encode())
        if size > LARGEST:
            reason = f"Message must be shorter than {LARGEST} bytes."
            raise SQSException("InvalidParameterValue", reason)
        for identity in (more.get("group_id"), more.get("deduplication_id")):
            if identity is not None and not re.fullmatch(r"[!-~]{1,128}", identity):
                raise SQSException("InvalidParameterValue", f"The id {identity} is not valid.")
        with LOCK:
            return super().send_message(queue_name, message_body, attributes, **more)

    def delete_message(self, queue_name, receipt_handle):
        """APIReference/API_DeleteMessage: by an older receipt it succeeds, and deletes nothing."""
        with LOCK:
            for message in self.get_queue(queue_name)._messages:
                if receipt_handle in message._old_receipt_handles:
                    return
            super().delete_message(queue_name, receipt_handle)

    def change_message_visibility(self, queue_name, receipt_handle, visibility_timeout):
        """APIReference/API_ChangeMessageVisibility: MessageNotInflight."""
        with LOCK:
            for message in self.get_queue(queue_name)._messages:
                if message.had_receipt_handle(receipt_handle):
                    if message.receipt_handle != receipt_handle or message.visible:
                        raise MessageNotInflight
                    # Twelve hours count from when it was received, not from when it was sent.
                    message.change_visibility(visibility_timeout)
                    if not visibility_timeout:
                        message.visible_at = 0.0
                        self.get_queue(queue_name).pending_messages.discard(message)
                    return
            raise ReceiptHandleIsInvalid


def remember_ids(queue, message, add=models.Queue.add_message):
    """SQSDeveloperGuide/using-messagededuplicationid-property: also once the first is deleted."""
    with LOCK:
        if queue.fifo_queue and message.deduplication_id:
            seen = queue.__dict__.setdefault("seen", {})
            now = time.monotonic()
            if seen.get(message.deduplication_id, -1e9) > now - 300:
                return
            seen[message.deduplication_id] = now
        add(queue, message)


def gate(application):
    """Faults on demand, and keys: whoever signs with another than ``test`` is refused."""

    def answer(environ, start):
        target = environ.get("HTTP_X_AMZ_TARGET", "").removeprefix("AmazonSQS.")
        if environ["PATH_INFO"] == "/_faults":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            FAULTS[:] = json.loads(body)
            return reply(start, 200, {})
        if target and "Credential=test/" not in environ.get("HTTP_AUTHORIZATION", ""):
            text = "The security token included in the request is invalid."
            return refuse(environ, start, 403, "InvalidClientTokenId", text)
        for fault in FAULTS:
            if fault["times"] and fault["action"] == target:
                fault["times"] -= 1
                return refuse(environ, start, fault["status"], fault["code"], "on demand")
        return application(environ, start)

    return answer


def refuse(environ, start, status, code, text):
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return reply(start, status, {"__type": f"com.amazonaws.sqs#{code}", "message": text})


def reply(start, status, body):
    data = json.dumps(body).encode()
    headers = [("Content-Type", "application/x-amz-json-1.0"), ("Content-Length", str(len(data)))]
    start(f"{status} As asked", headers)
    return [data]


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_):
        pass


def main():
    models.Queue.add_message = remember_ids
    models.unix_time_millis = lambda: time.time() * 1000  # as moto's, ten times as quick
    StrictBackend.__module__ = models.__name__  # moto looks for its URLs beside it
    models.sqs_backends.backend = StrictBackend
    application = gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    sys.stdin.read()  # the parent is gone, or wants us gone


if __name__ == "__main__":
    main()
