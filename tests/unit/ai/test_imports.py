"""A library is imported without a package that it imports and does not use."""

import gc
import importlib
import subprocess
import sys
import textwrap
import threading

import pytest

from lexigram.ai.workers._imports import import_without

CLIENT = {
    "client/__init__.py": """
        import events
        events.log.append("init")
        from client.api import Api
        from client.models import Model
        VERSION = 1
    """,
    "client/api.py": "from client.models import Model\nclass Api: model = Model\n",
    "client/models.py": "from client import plain\nclass Model: base = plain\n",
    "client/plain.py": "",
    "client/later.py": "import client\nfrom client import Api\n",
    "library.py": "from client.models import Model\n",
}


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Writes modules to a folder of sys.path; yields the log of what they note."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(files):
        for name, text in {"events.py": "log = []\n", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return importlib.import_module("events").log

    yield write
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"client", "library", "events"}:
            del sys.modules[name]


def test_the_init_of_an_unused_package_does_not_run(packages):
    log = packages(CLIENT)
    library = import_without("library", "client")
    assert log == []
    assert library.Model is sys.modules["client.models"].Model
    assert "client.api" not in sys.modules


def test_a_name_of_the_package_runs_its_init_once(packages):
    log = packages(CLIENT)
    library = import_without("library", "client")
    client = importlib.import_module("client")
    assert log == []
    assert client.VERSION == 1
    assert client.Api.model is client.Model is library.Model
    assert not hasattr(client, "unknown")
    assert log == ["init"]


def test_another_submodule_is_imported_after_the_init(packages):
    log = packages(CLIENT)
    import_without("library", "client")
    later = importlib.import_module("client.later")
    assert later.Api is sys.modules["client"].Api
    assert log == ["init"]


def test_from_the_package_import_a_name(packages):
    log = packages(CLIENT)
    import_without("library", "client")
    space = {}
    exec("from client import Api, plain", space)
    assert space["Api"] is sys.modules["client"].Api
    assert log == ["init"]


def test_a_library_that_uses_the_package_runs_its_init(packages):
    log = packages({**CLIENT, "library.py": "from client import Api\n"})
    assert import_without("library", "client").Api is sys.modules["client.api"].Api
    assert log == ["init"]


def test_a_package_that_cannot_wait_is_imported_as_usual(packages):
    """Its models need a name that the init defines before it imports them."""
    init = "import events\nevents.log.append('init')\nNAME = 1\nfrom client.models import Model\n"
    log = packages(
        {
            "client/__init__.py": init,
            "client/models.py": "from client import NAME\nclass Model: name = NAME\n",
            "library.py": "from client.models import Model\n",
        }
    )
    library = import_without("library", "client")
    assert library.Model is sys.modules["client"].Model
    assert log[-1] == "init"


def test_the_error_of_a_library_is_raised_as_it_is(packages):
    packages({**CLIENT, "library.py": "import client.models\nraise ValueError('mine')\n"})
    with pytest.raises(ValueError, match="mine"):
        import_without("library", "client")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        import_without("no_such_library", "client")


def test_an_init_that_fails_is_tried_again(packages):
    init = "import events\nevents.log.append('init')\nif len(events.log) == 1: raise OSError\nNAME = 1\n"
    log = packages({**CLIENT, "client/__init__.py": init})
    import_without("library", "client")
    client = importlib.import_module("client")
    with pytest.raises(OSError):
        _ = client.NAME
    assert client.NAME == 1
    assert log == ["init", "init"]


def test_what_was_imported_before_stays(packages):
    log = packages(CLIENT)
    client = importlib.import_module("client")
    import_without("library", "client")
    assert sys.modules["client"] is client
    assert log == ["init"]


def test_other_threads_import_as_usual(packages):
    log = packages(
        {**CLIENT, "library.py": "import events\nevents.other()\nimport client.models\n"}
    )

    def import_elsewhere():
        thread = threading.Thread(target=importlib.import_module, args=["client"])
        thread.start()
        thread.join()

    sys.modules["events"].other = import_elsewhere
    import_without("library", "client")
    assert log == ["init"]


def test_collections_go_on_after_the_import(packages):
    packages(CLIENT)
    import_without("library", "client")
    assert gc.isenabled()


def test_the_clients_of_lancedb_and_wordllama_are_imported_on_first_use():
    code = """
import anyio, sys, tempfile
from lexigram.ai.workers.embeddings.wordllama import WordLlamaEmbeddings
from lexigram.ai.workers.vectors.lancedb import LanceVectorStore

async def main():
    with tempfile.TemporaryDirectory() as folder:
        await LanceVectorStore(folder).connect()
    await WordLlamaEmbeddings().embed_texts(["letters"])

anyio.run(main)
client = "lance_namespace_urllib3_client"
print(*(name for name in (f"{client}.api", "requests.api") if name in sys.modules))
import lance_namespace_urllib3_client, requests
print(lance_namespace_urllib3_client.TableApi.__name__, requests.get.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["", "TableApi get"]
