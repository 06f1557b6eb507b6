"""``lexigram serve`` in a process of its own: it says where it listens, drains, and can be forced."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import httpx
import pytest

SCRIPTS = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[3]
HANG_GUARD = 120  # seconds

PROGRAM = """
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

        async def shutdown(self):
            print("shutdown", flush=True)

    router = APIRouter()

    @router.get("/slow/{seconds}")
    async def slow(seconds: float, session: Annotated[Session, Inject()]) -> str:
        await anyio.sleep(seconds)
        return "done"

    app = Application("shop", modules=[WebModule.configure(routers=[router])], providers=[Parts])
    plain = Application("plain")
"""


@contextmanager
def serving(folder, *arguments, **variables):
    (folder / "shop.py").write_text(dedent(PROGRAM), encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEX_", "PYTEST", "COV"))}
    with subprocess.Popen(
        [SCRIPTS / "lexigram", "serve", *arguments, "--port", "0"],
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


def test_an_address_others_can_reach_is_refused_and_nothing_stays_up(tmp_path):
    with serving(tmp_path, "shop:app", "--host", "0.0.0.0", "--json") as process:
        out, _ = process.communicate(timeout=HANG_GUARD)
        assert process.returncode == 2
        first, _, rest = out.partition("\n")
        assert first == "shutdown"
        assert json.loads(rest)["error"]["code"] == "LEX_ERR_WEB_002"


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
