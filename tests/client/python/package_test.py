"""What is installed: one top-level package, typed, with its messages inside."""

import importlib
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

import normd

OURS = ROOT / "client" / "python"


def test_everything_that_is_installed_lies_in_one_package():
    files = [str(path) for path in importlib.metadata.files("normd")]
    inside = [path for path in files if path.startswith("normd/")]
    assert {path.split("/")[0] for path in files if ".dist-info/" not in path} == {"normd"}
    for name in ("normd/py.typed", "normd/_proto/normalizer_pb2.py", "normd/_proto/normalizer_pb2.pyi"):
        assert name in inside
    assert normd.__version__ == importlib.metadata.version("normd")
    assert pathlib.Path(normd.__file__).parent != OURS / "src" / "normd"


def test_the_requirements_are_few_and_torch_is_not_among_them():
    required = {re.match(r"[\w-]+", line).group() for line in importlib.metadata.requires("normd")
                if "extra ==" not in line}
    assert required == {"numpy", "grpcio", "protobuf"}


def test_importing_it_needs_and_takes_nothing_else():
    """In an interpreter without the extras; and stubs of the user's, which have the same messages, do no harm."""
    program = ("import sys\n"
               "for name in ('torch', 'ml_dtypes', 'tqdm', 'gymnasium', 'sklearn', 'river'): sys.modules[name] = None\n"
               "import normd, normd.stats, numpy\n"
               "try: normd.connect('127.0.0.1:1', deadline=0.2).layer_norm(numpy.ones(4), 4)\n"
               "except normd.Unavailable: print('imported')\n")
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert result.stdout == "imported\n", result.stderr


STUBS = """
import importlib.util, pickle, sys
from google.protobuf import descriptor_pb2, descriptor_pool

def stubs():  # what generated modules of another version do: the files come into the default pool
    for content in descriptors.FILES:
        file = descriptor_pb2.FileDescriptorProto.FromString(content)
        if file.name.startswith("normd/"):
            file.message_type[0].field.add(name="later", number=99, type=5, label=1)
        if not file.name.startswith("google/protobuf/"):  # which protobuf itself brings
            descriptor_pool.Default().AddSerializedFile(file.SerializeToString())

def package():
    import normd
    spec = normd.LayerNorm(4).to_proto()
    assert pickle.loads(pickle.dumps(spec)) == spec

found = importlib.util.spec_from_file_location("descriptors", sys.argv[1])
descriptors = importlib.util.module_from_spec(found)
found.loader.exec_module(descriptors)
from google.protobuf import any_pb2, duration_pb2, empty_pb2, field_mask_pb2, timestamp_pb2
for step in sys.argv[2:]:
    globals()[step]()
"""


@pytest.mark.parametrize("order", [("stubs", "package"), ("package", "stubs")])
def test_stubs_of_another_version_live_in_the_same_process(order):
    descriptors = pathlib.Path(normd.__file__).parent / "_proto" / "_descriptors.py"
    subprocess.run([sys.executable, "-c", STUBS, descriptors, *order], check=True)


@pytest.mark.parametrize("program", [
    "import sys; sys.path.append(FOLDER); import normd.v1.norm_pb2 as stubs, normd",
    "import sys; sys.path.insert(0, FOLDER); import normd, normd.v1.norm_pb2 as stubs",
    "import sys, normd; sys.path.append(FOLDER); from normd.v1 import norm_pb2 as stubs"])
def test_a_users_own_stubs_are_found_beside_the_package(tmp_path, program):
    stubs = tmp_path / "normd" / "v1" / "norm_pb2.py"
    stubs.parent.mkdir(parents=True)
    stubs.write_text("whose = 'mine'\n")
    (tmp_path / "normd" / "specs.py").write_text("raise ImportError('hidden')\n")
    program = program.replace("FOLDER", repr(str(tmp_path))) + "; import normd.specs; print(stubs.whose, normd.LayerNorm(4))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.startswith("mine LayerNorm("), result.stderr


# An environment for tests need not have setuptools.
BUILD = """
import sys, types
setuptools = types.SimpleNamespace(setup=lambda **_: None, build_py=object, sdist=object)
for name in ("setuptools", "setuptools.command", "setuptools.command.build_py", "setuptools.command.sdist"):
    sys.modules[name] = setuptools
import setup
print(setup.proto_folder())
"""


def test_a_build_that_does_not_find_the_protos_says_which_pip_is_needed(tmp_path):
    """pip before 21.3 builds in a copy of client/python alone."""
    shutil.copy(OURS / "setup.py", tmp_path)
    for folder, code, said in ((OURS, 0, ""), (tmp_path, 1, "pip 21.3 or later is needed")):
        result = subprocess.run([sys.executable, "-Bc", BUILD], cwd=folder, capture_output=True, text=True)
        assert (result.returncode, said in result.stderr) == (code, True), result.stderr


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
