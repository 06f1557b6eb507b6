"""The process of the Kafka double: librdkafka's own mock cluster, and a few words to trouble it.

Prints the bootstrap address. Then reads commands, one per line, and answers each with ``ok``:
``topic NAME PARTITIONS``, ``down BROKER``, ``up BROKER``, ``rtt BROKER MILLISECONDS``,
``errors API CODE COUNT`` (the next answers of that API of the protocol fail). Ends with its stdin.
"""

import ctypes
import sys
from pathlib import Path

import confluent_kafka

PRODUCER = 0  # rd_kafka_type_t


def _library():
    """The library the client itself brings: the mock is part of it, its control is not in Python."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def main():
    library = _library()
    handle = ctypes.c_void_p(
        library.rd_kafka_new(PRODUCER, ctypes.c_void_p(library.rd_kafka_conf_new()), None, 0)
    )
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(handle, int(sys.argv[1])))
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
        else:
            call = {"down": "rd_kafka_mock_broker_set_down", "up": "rd_kafka_mock_broker_set_up"}
            failed = getattr(library, call[word])(cluster, int(rest[0]))
        print(f"error {failed}" if failed else "ok", flush=True)


if __name__ == "__main__":
    main()
