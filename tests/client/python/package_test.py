"""What is installed: one top-level package, typed, with its messages inside."""

import importlib
import importlib.metadata
import pathlib
import re
import subprocess
import sys

from conftest import ROOT

import normd

OURS = ROOT / "client" / "python"


def test_everything_that_is_installed_lies_in_one_package():
    files = [str(path) for path in importlib.metadata.files("normd")]
    inside = [path for path in files if path.startswith("normd/")]
    assert {path.split("/")[0] for path in files if ".dist-info/" not in path} == {"normd"}
    for name in ("normd/py.typed", "normd/_proto/normalizer_pb2.py", "normd/_proto/normalizer_pb2.pyi"):
        assert name in inside
    assert pathlib.Path(normd.__file__).parent != OURS / "src" / "normd"


def test_the_requirements_are_few_and_torch_is_not_among_them():
    required = {re.match(r"[\w-]+", line).group() for line in importlib.metadata.requires("normd")
                if "extra ==" not in line}
    assert required == {"numpy", "grpcio", "googleapis-common-protos", "protobuf"}


def test_importing_it_needs_and_takes_nothing_else():
    """In an interpreter without the extras; and stubs of the user's, which have the same messages, do no harm."""
    program = ("import sys\nfor name in ('torch', 'ml_dtypes', 'tqdm'): sys.modules[name] = None\n"
               "import normd, numpy\n"
               "try: normd.connect('127.0.0.1:1', deadline=0.2).layer_norm(numpy.ones(4), 4)\n"
               "except normd.Unavailable: print('imported')\n")
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert result.stdout == "imported\n", result.stderr


def test_the_names_are_all_there_and_have_docstrings():
    for name in normd.__all__:
        assert getattr(normd, name).__doc__, name
    for kind in (normd.Client, normd.Session):
        for name, member in vars(kind).items():
            if not name.startswith("_") and name not in ("weight", "bias"):
                assert member.__doc__, f"{kind.__name__}.{name}"


def test_the_checkout_is_as_it_was():
    """Building the package leaves nothing in the source tree but what an editable install puts there."""
    assert not list(OURS.glob("**/*.egg-info")) and not (OURS / "build").exists()


def test_the_messages_are_the_repositorys():
    module = importlib.import_module("normd._proto.normalizer_pb2")
    described = module.DescribeResponse.DESCRIPTOR.fields_by_name
    assert described["server_uid"].number == 9 and described["unix_socket"].number == 10
    assert module.NormalizeRequest.__module__ == "normd._proto.normalizer_pb2"
