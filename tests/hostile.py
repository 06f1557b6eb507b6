"""What producers write that know no rules: headers, bodies and native blocks of them, by a seed."""

import string
import struct
import time
from functools import cache

SEED = 14
# Headers that mean something to the bus, to a driver or to a broker.
NAMES = [
    *("ce-id", "ce-time", "ce-type", "ce-source", "ce-specversion", "ce_id", "ce_time"),
    *("ce-lextopic", "ce-lextimestamp", "ce-lexttl", "ce-lexpriority", "ce-lexguarantee"),
    *("ce-lexretries", "ce-lexmaxretries", "ce-lexunreadable", "ce_lexttl", "ce_lexpriority"),
    *("deliver-at", "ordering-key", "fairness-key", "content-type", "reply-to", "correlation-id"),
    *("dead-reason", "dead-at", "dead-retries", "dead-attempts", "x-lex-due", "x-lex-deliveries"),
    *("lex-not-before", "Status", "Description", "traceparent", "letter-facts", "tenant"),
]
VALUES = [
    *(b"", b" ", b"soon", b"nan", b"inf", b"-inf", b"1e300", b"-1", b"0", b"1", b"1.5", b"2" * 400),
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        "é✓".encode(),
        b"a\x1b[31m",
        b"%00%ff",
        b"null",
        b"{}",
    ),
    *(b"[" * 5_000, b"9223372036854775808", b"1700000000000", b"application/json", b"text/plain"),
    *(b"2026-01-02T03:04:05Z", b"exactly_once", b"*", b">", b"x" * 2_000),
    # What is slow where time grows with the square of the length.
    *(b"%25" * 3_000, b"%" * 5_000, b"; " * 4_000, b"00-" * 3_000, b"1_" * 4_000, b"/" * 9_000),
    *("€".encode() * 3_000, b"\xe2\x82" * 4_000, b"2026-01-02T" + b"0" * 5_000, b"\\" * 8_000),
]
BODIES = [
    *(b"", b"{}", b"null", b"1", b"[" * 5_000, b"\xff\xfe", b"\xc1", b'{"a": 1e999}', b'"\\ud800"'),
    *(b'{"$type": "os.system"}', b"9" * 5_000, b"{" * 300, b'{"a": NaN}', b"x" * 20_000),
]
# Many of one of these are long, deep or both.
PIECES = [
    b"[",
    b"{",
    b'{"a":',
    b"[1,",
    b'"',
    b"\\",
    b"9",
    b"-",
    b"e",
    b" ",
    b"\x91",
    b"\x81\xa1a",
    b"\xdd",
]


def hostile_headers(chance):
    """Some headers, names and values drawn from what hurts, or made up."""
    return {_name(chance): _value(chance) for _ in range(chance.randint(0, 6))}


def hostile_body(chance):
    """A body that is no JSON, or too much of it, or any bytes."""
    if chance.random() < 0.2:
        return chance.randbytes(chance.randint(0, 200))
    if chance.random() < 0.1:
        return chance.choice(PIECES) * chance.randint(1, 5_000)
    return chance.choice(BODIES)


def _name(chance):
    if chance.random() < 0.7:
        return chance.choice(NAMES).encode()
    if chance.random() < 0.5:
        return "".join(chance.choices(string.ascii_letters, k=chance.randint(1, 30))).encode()
    return chance.randbytes(chance.randint(1, 10))


def _value(chance):
    if chance.random() < 0.7:
        return chance.choice(VALUES)
    return chance.randbytes(chance.randint(0, 40))


def nats_block(chance):
    lines = [name + b": " + value for name, value in hostile_headers(chance).items()]
    status = chance.choice([b"", b"", b"", b" 404", b" 100 Idle", b" \xff\xff", b" 503 \xff"])
    block = b"NATS/1.0" + status + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    return block[: chance.randint(1, len(block))] if chance.random() < 0.1 else block


def amqp_properties(chance):
    """Flags and the properties: headers, priority, message id and time, each of them or not."""
    flags, data = 0, b""
    if chance.random() < 0.9:
        flags |= 1 << 13
        table = b"".join(
            struct.pack("B", len(name)) + name + _amqp_value(chance, value)
            for name, value in hostile_headers(chance).items()
        )
        data += struct.pack(">I", len(table)) + table
    if chance.random() < 0.3:
        flags |= 1 << 11
        data += chance.randbytes(1)  # priority
    if chance.random() < 0.5:
        flags |= 1 << 7
        name = chance.choice([b"", b"mine", b"\xff\xfe", b"x" * 255])  # message id
        data += struct.pack("B", len(name)) + name
    if chance.random() < 0.5:
        flags |= 1 << 6
        data += struct.pack(">Q", chance.choice([0, 1_700_000_000, 10**15, 10**18, 2**64 - 1]))
    return struct.pack(">H", flags) + data


def _amqp_value(chance, value):
    kind = chance.randint(0, 9)
    if kind == 0:
        return b"T" + struct.pack(">Q", chance.choice([0, 10**12, 10**15, 10**18, 2**63]))
    if kind == 1:
        return b"l" + struct.pack(">q", chance.choice([0, -1, 2**62, -(2**63)]))
    if kind == 2:
        return b"d" + struct.pack(">d", chance.choice([0.0, -1.5, 1e300]))
    if kind == 3:
        return b"V"
    if kind == 4:
        table = b"\x01a" + b"S" + struct.pack(">I", len(value)) + value
        return b"F" + struct.pack(">I", len(table)) + table
    if kind == 5:
        return _nested(chance.choice([1, 50, 50, 50, 50, 50, 2_000]))
    return b"S" + struct.pack(">I", len(value)) + value


@cache
def _nested(depth):
    """Arrays inside each other."""
    found = b"V"
    for _ in range(depth):
        found = b"A" + struct.pack(">I", len(found)) + found
    return found


def measure(decode, size):
    """Seconds of processor time beyond what ``size`` bytes may take; 0 when it is within.

    Of the thread, so that a busy machine does not count; the best of three, so that a collection
    of garbage does not either.
    """
    allowed = 0.1 * max(1.0, size / 10_000)
    for _ in range(3):
        begun = time.thread_time()
        decode()
        spent = time.thread_time() - begun
        if spent <= allowed:
            return 0.0
    return spent - allowed
