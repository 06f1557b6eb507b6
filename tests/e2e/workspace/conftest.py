"""The five wheels, as ``make wheels`` builds them."""

import os

import pytest
from docblocks import ROOT
from tests.make import make


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """Member -> its wheel, built with the hatchling of this environment: no network."""
    folder = tmp_path_factory.mktemp("wheels")
    done = make("wheels", f"DIST={os.path.relpath(folder, ROOT)}")
    assert done.returncode == 0, done.stdout + done.stderr
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.glob("*.whl")}
