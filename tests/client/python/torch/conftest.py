"""The server that these tests ask: the program named by NORMD_PROGRAM in the environment, started here.

    NORMD_PROGRAM=build/release/normd python -m pytest tests/client/python/torch
"""

import os
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "e2e" / "real_models"))
from normd_server import Server  # noqa: E402

import normd  # noqa: E402


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    program = os.environ.get("NORMD_PROGRAM")
    if program is None:
        pytest.exit("NORMD_PROGRAM=... must name the program to test", returncode=2)
    with Server(os.path.abspath(program), str(tmp_path_factory.mktemp("normd"))) as started:
        yield started


@pytest.fixture(scope="session")
def client(server):
    with normd.connect(server.address) as connected:
        yield connected


@pytest.fixture(autouse=True)
def default_client(client):
    """Every test calls this server without naming it, and draws the same random numbers."""
    normd.set_default_client(client)
    torch.manual_seed(0)
    yield
    normd.set_default_client(None)
