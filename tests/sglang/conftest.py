"""What the suites here share: the tiny model, and SGLang imported once."""

import subprocess
import sys

import pytest

from serving import HERE, Fleet


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tinymodel")
    subprocess.run([sys.executable, HERE / "make_tiny.py", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def fleet(model_dir):
    with Fleet(model_dir) as fleet:
        yield fleet
