"""Fixtures of the drop-ins for packages that normd.stats is tested with, unmodified."""

import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from conftest import *  # noqa: E402,F401,F403  the servers and clients of all Python tests
