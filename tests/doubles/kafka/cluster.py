"""The process of the Kafka double: librdkafka's own mock cluster, and a few words to trouble it.

Prints the bootstrap address. Then reads commands, one per line, and answers each with ``ok``:
``topic NAME PARTITIONS``, ``down BROKER``, ``up BROKER``, ``rtt BROKER MILLISECONDS``,
``errors API CODE COUNT`` (the next answers of that API of the protocol fail), ``no_errors API``.
Ends with its stdin.
"""

import ctypes
import sys
from pathlib import Path

import confluent_kafka

PRODUCER = 0  # rd_kafka_type_t
METADATA = 3  # a number of the protocol
# A member that asks for its part after the leader has told all parts is refused by the mock, where
# a broker answers, and joins anew: the group changes again and again. A leader asks for metadata
# first; while it waits for them, the others have asked.
METADATA_MILLISECONDS = 50
METADATA_ANSWERS = 20_000  # so many are slow: more than a run of tests asks for
AT_ONCE = 400  # arguments of one foreign call are limited


def _library():
    """The library the client itself brings: the mock is part of it, its control is not in Python."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def _slow_metadata(library, cluster, broker):
    """Each entry is used up by one answer: no error, and so many milliseconds."""
    entries = [ctypes.c_int(0), ctypes.c_int(METADATA_MILLISECONDS)] * AT_ONCE
    for _ in range(METADATA_ANSWERS // AT_ONCE):
        library.rd_kafka_mock_broker_push_request_error_rtts(
            cluster,
            ctypes.c_int32(broker),
            ctypes.c_int16(METADATA),
            ctypes.c_size_t(AT_ONCE),
            *entries,
        )


def main():
    library = _library()
    handle = ctypes.c_void_p(
        library.rd_kafka_new(PRODUCER, ctypes.c_void_p(library.rd_kafka_conf_new()), None, 0)
    )
    brokers = int(sys.argv[1])
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(handle, brokers))
    for broker in range(1, brokers + 1):
        _slow_metadata(library, cluster, broker)
    # A real broker waits three seconds for more members of a new group; tests have none to lose.
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0)
    # Without a controller a client waits for one before it is told that topics make themselves here.
    library.rd_kafka_mock_set_controller_id(cluster, 1)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "topic":
            name, partitions = rest[0].encode(), int(rest[1])
            failed = library.rd_kafka_mock_topic_create(cluster, name, partitions, 1)
        elif word == "rtt":
            failed = library.rd_kafka_mock_broker_set_rtt(cluster, int(rest[0]), int(rest[1]))
        elif word == "errors":
            api, code, count = map(int, rest)
            codes = (ctypes.c_int * count)(*[code] * count)
            library.rd_kafka_mock_push_request_errors_array(
                cluster, ctypes.c_int16(api), ctypes.c_size_t(count), codes
            )
            failed = 0
        elif word == "no_errors":
            library.rd_kafka_mock_clear_request_errors(cluster, ctypes.c_int16(int(rest[0])))
            failed = 0
        else:
            call = {"down": "rd_kafka_mock_broker_set_down", "up": "rd_kafka_mock_broker_set_up"}
            failed = getattr(library, call[word])(cluster, int(rest[0]))
        print(f"error {failed}" if failed else "ok", flush=True)


if __name__ == "__main__":
    main()
