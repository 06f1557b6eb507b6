"""Settings, keys and names, without a server."""

import subprocess
import sys

import pytest

from lexigram.app import Application
from lexigram.config import LexigramConfig, SecretStr
from lexigram.contracts.core.errors import ConfigurationError
from lexigram.web import WebModule
from lexigram.web.auth import Guard, is_local_name
from lexigram.web.config import WebConfig

KEY = "a-key-that-is-long-enough"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"trusted_proxies": ["the-proxy"]}, "the-proxy"),
        ({"port": 65536}, "65535"),
        ({"max_body_bytes": 0}, "0"),
    ],
)
def test_a_wrong_setting_is_told(settings, text):
    config = LexigramConfig(sections={"web": settings})
    with pytest.raises(ConfigurationError, match=text):
        config.get_section("web", WebConfig)


@pytest.mark.anyio
@pytest.mark.parametrize("key", ["tiny", "", "sha256:nothex", "sha256:" + "A" * 64])
async def test_a_key_that_is_none_stops_the_start_and_is_not_shown(key):
    config = LexigramConfig(sections={"web": {"api_keys": {"ada": key}}})
    with pytest.raises(ConfigurationError, match=r"web.api_keys: .* ada has") as caught:
        async with Application("shop", config, modules=[WebModule]):
            pass
    assert not key or key not in str(caught.value).replace("sha256: and", "")


def test_keys_are_never_shown():
    config = WebConfig(api_keys={"ada": SecretStr(KEY)})
    assert KEY not in repr(config)
    assert KEY not in str(config.to_safe_dict())
    assert KEY not in repr(vars(Guard(config)))


def test_a_key_is_known_by_its_hash_too():
    import hashlib

    hashed = hashlib.sha256(KEY.encode()).hexdigest()
    guard = Guard(WebConfig(api_keys={"ada": SecretStr(f"sha256:{hashed}")}))
    found = guard.caller({b"x-api-key": KEY.encode()}, None)
    assert found is not None
    assert found.name == "ada"
    assert guard.caller({b"x-api-key": f"sha256:{hashed}".encode()}, None) is None


def test_a_user_header_counts_from_a_trusted_proxy_only():
    guard = Guard(WebConfig(trusted_proxies=("10.0.0.0/24", "::1")))
    headers = {b"x-forwarded-user": b"ada"}
    assert guard.is_needed
    for peer in ("10.0.0.7", "::1"):
        found = guard.caller(headers, peer)
        assert found is not None
        assert (found.name, found.via) == ("ada", "proxy")
    for peer in ("10.0.1.7", "127.0.0.1", None, "", "unix"):
        assert guard.caller(headers, peer) is None
    assert guard.caller({b"x-forwarded-user": b""}, "10.0.0.7") is None


@pytest.mark.parametrize(
    ("host", "local"),
    [
        (None, True),
        (b"localhost", True),
        (b"LOCALHOST:8000", True),
        (b"127.0.0.9:1", True),
        (b"[::1]", True),
        (b"[::1]:8000", True),
        (b"", False),
        (b"127.0.0.1.attacker.example", False),
        (b"[::1].attacker.example", False),
        (b"[::1].attacker.example:8000", False),
        (b"[::1]attacker.example", False),
        (b"[::1", False),
        (b"[::1]:80:90", False),
        (b"::1", False),
        (b"localhost:attacker.example", False),
        (b"attacker.example:80@localhost", False),
        (b"localhost@attacker.example", False),
        (b"attacker.example, localhost", False),
        (b"attacker.example/.localhost", False),
        (b"localhost:", True),
        (b"attacker.example:8000", False),
        (b"[2001:db8::1]:80", False),
        (b"0.0.0.0", False),
    ],
)
def test_only_names_of_this_machine_are_local(host, local):
    assert is_local_name(host) is local


@pytest.mark.parametrize("name", ["WebModule", "Inject", "WebHost"])
def test_without_the_extra_the_install_command_is_named(name):
    program = (
        "import sys; sys.modules['fastapi'] = None; sys.modules['uvicorn'] = None\n"
        f"from lexigram.web import {name}"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "pip install 'lexigram[web]'" in run.stderr
