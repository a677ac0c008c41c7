"""Generates normd._proto from the repository's .proto files while a wheel is built; pyproject.toml has the rest.

The files come from ../../proto in a checkout and from ./proto in an sdist, which carries them. Products go to a
temporary folder, so that `pip install ./client/python` leaves the checkout as it was; an editable install alone puts
src/normd/_proto/*_pb2.py there, which git ignores.
"""

import atexit
import pathlib
import re
import shutil
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("norm", "tensor", "normalizer", "sessions", "shared_memory")


def proto_folder() -> pathlib.Path:
    for folder in (HERE / "proto", HERE.parent.parent / "proto"):
        if (folder / "normd").is_dir():
            return folder
    raise FileNotFoundError(f"no .proto files in {HERE / 'proto'} and {HERE.parent.parent / 'proto'}")


def generate(package: pathlib.Path) -> None:
    """Writes NAME_pb2.py and .pyi to the folder `package`, which is normd._proto."""
    import grpc_tools
    from grpc_tools import protoc

    protos = proto_folder()
    with tempfile.TemporaryDirectory() as scratch:
        common = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        files = [str(protos / "normd" / "v1" / f"{name}.proto") for name in NAMES]
        arguments = [f"-I{protos}", f"-I{common}", f"--python_out={scratch}", f"--pyi_out={scratch}", *files]
        if protoc.main(["protoc", *arguments]) != 0:
            raise RuntimeError("protoc failed")
        package.mkdir(parents=True, exist_ok=True)
        for path in sorted(pathlib.Path(scratch, "normd", "v1").iterdir()):
            # The modules live in normd._proto: a top-level package normd.v1 would be in the way of users' own stubs.
            text = re.sub(r"\bnormd\.v1( import|\.\w+_pb2)", r"normd._proto\1", path.read_text(encoding="utf-8"))
            (package / path.name).write_text(text, encoding="utf-8")


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        editable = getattr(self, "editable_mode", False)
        generate((HERE / "src" if editable else pathlib.Path(self.build_lib)) / "normd" / "_proto")


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list) -> None:
        super().make_release_tree(base_dir, files)
        for name in NAMES:
            target = pathlib.Path(base_dir, "proto", "normd", "v1", f"{name}.proto")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(proto_folder() / "normd" / "v1" / target.name, target)
        common = pathlib.Path(base_dir, "proto", "google", "rpc")
        common.mkdir(parents=True, exist_ok=True)
        shutil.copy(proto_folder() / "google" / "rpc" / "status.proto", common)


products = tempfile.mkdtemp(prefix="normd-build.")
atexit.register(shutil.rmtree, products, ignore_errors=True)
setup(
    cmdclass={"build_py": BuildPy, "sdist": Sdist},
    options={"build": {"build_base": products}, "egg_info": {"egg_base": products}},
)
