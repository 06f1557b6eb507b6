"""``lexigram serve`` in a process of its own: it says where it listens, drains, and can be forced."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import httpx
import pytest
from tests.processes import Popen

SCRIPTS = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[3]
HANG_GUARD = 120  # seconds

PROGRAM = """
    import os

    import anyio
    from fastapi import APIRouter
    from typing import Annotated

    from lexigram.app import Application
    from lexigram.di import Provider
    from lexigram.web import Inject, WebModule

    class Session:
        pass

    class Parts(Provider):
        async def register(self, container):
            async def session():
                print("opened", flush=True)
                yield Session()
                print("closed", flush=True)
            container.scoped(Session, factory=session)

        async def boot(self, container):
            if os.environ.get("TELL"):
                print("booted", flush=True)

        async def shutdown(self):
            print("shutdown", flush=True)

    router = APIRouter()

    @router.get("/slow/{seconds}")
    async def slow(seconds: float, session: Annotated[Session, Inject()]) -> str:
        await anyio.sleep(seconds)
        return "done"

    clash = APIRouter()

    @clash.get("/health/live")
    async def alive() -> str:
        return "yes"

    clashing = Application("clash", modules=[WebModule.configure(routers=[clash])], providers=[Parts])
    app = Application("shop", modules=[WebModule.configure(routers=[router])], providers=[Parts])
    plain = Application("plain")
"""


@contextmanager
def serving(folder, *arguments, **variables):
    (folder / "shop.py").write_text(dedent(PROGRAM), encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEX_", "PYTEST", "COV"))}
    with Popen(
        [SCRIPTS / "lexigram", "serve", "--port", "0", *arguments],
        cwd=folder,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process):
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.stderr.read())
    return json.loads(line)


def get(url, **more):
    return httpx.get(url, timeout=HANG_GUARD, trust_env=False, **more)


def ask(url, answers):
    def wait():
        try:
            answers.append(get(url).text)
        except httpx.HTTPError as error:
            answers.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.promise
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_drains_on_a_signal(tmp_path, number):
    with serving(tmp_path, "shop:app", "--json") as process:
        place = told(process)
        assert place["url"] == f"http://127.0.0.1:{place['port']}"
        assert get(f"{place['url']}/health/ready").status_code == 200
        answers = []
        thread = ask(f"{place['url']}/slow/0.5", answers)
        assert process.stdout.readline() == "opened\n"
        process.send_signal(number)
        thread.join(HANG_GUARD)
        assert answers == ['"done"']
        assert [process.stdout.readline() for _ in range(2)] == ["closed\n", "shutdown\n"]
        assert process.wait(HANG_GUARD) == 0
        assert "Traceback" not in process.stderr.read()


def test_a_second_signal_ends_it_at_once(tmp_path):
    with serving(tmp_path, "shop:app", "--json") as process:
        place = told(process)
        thread = ask(f"{place['url']}/slow/3600", answers := [])
        assert process.stdout.readline() == "opened\n"
        process.send_signal(signal.SIGTERM)
        for line in process.stderr:
            if "Shutting down" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_GUARD) == 143
        thread.join(HANG_GUARD)
        assert isinstance(answers[0], httpx.HTTPError)
        assert "closed" not in process.stdout.read()


def test_a_request_that_does_not_end_is_cancelled_and_everything_is_stopped(tmp_path):
    variables = {"LEX_WEB__DRAIN_TIMEOUT": "1"}
    with serving(tmp_path, "shop:app", "--json", **variables) as process:
        place = told(process)
        thread = ask(f"{place['url']}/slow/3600", answers := [])
        assert process.stdout.readline() == "opened\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_GUARD) == 0
        thread.join(HANG_GUARD)
        assert json.loads(answers[0])["code"] == "LEX_ERR_WEB_009"
        assert process.stdout.read() == "shutdown\n"


def test_an_application_without_the_module_is_served_as_configured(tmp_path):
    variables = {"LEX_WEB__API_KEYS__ADA": "a-key-that-is-long-enough"}
    with serving(tmp_path, "shop:plain", "--host", "0.0.0.0", "--json", **variables) as process:
        place = told(process)
        url = f"http://127.0.0.1:{place['port']}"
        assert get(f"{url}/health/live").status_code == 200
        assert get(f"{url}/openapi.json").status_code == 401
        key = {"X-API-Key": "a-key-that-is-long-enough"}
        assert get(f"{url}/openapi.json", headers=key).status_code == 200


TAKEN = "taken"
WRONG = {
    "open to others": (["--host", "0.0.0.0"], {}, "LEX_ERR_WEB_002"),
    "taken": (["--port", TAKEN], {}, "LEX_ERR_WEB_002"),
    "no such host": (["--host", "no host"], {}, "LEX_ERR_WEB_002"),
    "short key": ([], {"LEX_WEB__API_KEYS__ADA": "short"}, "LEX_ERR_CFG_001"),
    "no such port": ([], {"LEX_WEB__PORT": "99999"}, "LEX_ERR_CFG_003"),
}


@pytest.mark.promise
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_place_and_keys_is_exit_2_before_anything_boots(tmp_path, wrong):
    arguments, variables, code = WRONG[wrong]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = [port if word is TAKEN else word for word in arguments]
        variables = {"TELL": "1", **variables}
        with serving(tmp_path, "shop:app", "--json", *arguments, **variables) as process:
            out, _ = process.communicate(timeout=HANG_GUARD)
    assert json.loads(out)["error"]["code"] == code  # and not a word of the provider
    assert (process.returncode, json.loads(out)["exit_code"]) == (2, 2)


def test_what_is_found_after_the_boot_is_not_exit_2(tmp_path):
    with serving(tmp_path, "shop:clashing", "--json", TELL="1") as process:
        out, _ = process.communicate(timeout=HANG_GUARD)
    words, _, document = out.partition("{")
    assert words == "booted\nshutdown\n"
    failure = json.loads("{" + document)
    assert failure["error"]["code"] == "LEX_ERR_WEB_003"
    assert (process.returncode, failure["exit_code"]) == (1, 1)


def test_the_example_is_served(tmp_path):
    with serving(tmp_path, "examples.web.app:app", PYTHONPATH=str(ROOT)) as process:
        line = process.stdout.readline()
        assert line.startswith("notes listens on http://127.0.0.1:")
        url = line.split()[-1]
        with httpx.Client(base_url=url, timeout=HANG_GUARD, trust_env=False) as client:
            assert client.put("/notes/milk", json={"text": "two litres"}).status_code == 201
            assert client.get("/notes/milk").json() == {"text": "two litres"}
            assert client.get("/notes/bread").json()["code"] == "NOTES_001"
            assert client.put("/notes/milk", json={"text": "x"}).json()["code"] == "NOTES_002"
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_GUARD) == 0
