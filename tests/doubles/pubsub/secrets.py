"""Certificates and keys for a double that wants TLS and the tokens of a service account."""

import json
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


def make(folder, project):
    """server.crt and .key for localhost, account.crt, and two key files: right.json, wrong.json."""
    server, certificate = _pair("localhost")
    (folder / "server.key").write_bytes(server)
    (folder / "server.crt").write_bytes(certificate)
    right, account = _pair("bus")
    (folder / "account.crt").write_bytes(account)
    for name, key in (("right", right), ("wrong", _pair("bus")[0])):
        about = {
            "type": "service_account",
            "project_id": project,
            "private_key_id": "1",
            "private_key": key.decode(),
            "client_email": f"bus@{project}.iam.gserviceaccount.com",
            "token_uri": "http://127.0.0.1:1/token",  # tokens are signed here, not fetched
        }
        (folder / f"{name}.json").write_text(json.dumps(about))
    return folder


def _pair(name):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    owner = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(owner)
        .issuer_name(owner)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return private, made.public_bytes(serialization.Encoding.PEM)
