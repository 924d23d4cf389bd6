"""What the tests of this directory share."""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tinymodel")
    subprocess.run([sys.executable, HERE / "make_tiny.py", folder], check=True)
    return folder
