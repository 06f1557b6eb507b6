"""``python -m tests.doubles.servicebus [tier]``: serves until its input ends; tells its ports."""

import json
import socket
import sys
import threading
from http.server import ThreadingHTTPServer

from proton.reactor import Container
from tests.doubles.servicebus.entities import Namespace
from tests.doubles.servicebus.management import Management
from tests.doubles.servicebus.wire import Wire


def main():
    namespace, lock, faults = Namespace(), threading.RLock(), {}
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Management)
    server.daemon_threads = True
    server.namespace, server.lock, server.faults = namespace, lock, faults
    server.tier = sys.argv[1] if len(sys.argv) > 1 else "Standard"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    container = Container(Wire(namespace, lock, port, faults))
    threading.Thread(target=container.run, daemon=True).start()
    print(json.dumps({"amqp": port, "http": server.server_port}), flush=True)
    sys.stdin.read()  # the parent is gone, or wants us gone


if __name__ == "__main__":
    main()
