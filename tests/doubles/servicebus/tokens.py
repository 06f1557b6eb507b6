"""Shared access signatures: whether a token was made with the namespace's key and still holds."""

import base64
import hashlib
import hmac
import time
from urllib.parse import parse_qs, quote_plus, unquote

KEY_NAME = "RootManageSharedAccessKey"
KEY = base64.b64encode(b"a key of the double").decode()


def is_valid(token):
    """DOCS service-bus-sas: HMAC-SHA256 over the encoded resource, a newline and the expiry."""
    kind, _, rest = str(token).partition(" ")
    if kind != "SharedAccessSignature":
        return False
    parts = parse_qs(rest)
    try:
        resource, signature = parts["sr"][0], parts["sig"][0]
        expiry, name = parts["se"][0], parts["skn"][0]
    except KeyError:
        return False
    encoded = dict(part.partition("=")[::2] for part in rest.split("&"))["sr"]
    if unquote(encoded) != resource:
        encoded = quote_plus(resource)
    text = f"{encoded}\n{expiry}".encode()
    wanted = base64.b64encode(hmac.new(KEY.encode(), text, hashlib.sha256).digest()).decode()
    return name == KEY_NAME and int(expiry) > time.time() and hmac.compare_digest(wanted, signature)
