"""Generates the modules of normd._proto from the repository's .proto files while a wheel is built; pyproject.toml has the rest.

The files come from ../../proto in a checkout and from ./proto in an sdist, which carries them. Products go to a
temporary folder, so that `pip install ./client/python` leaves the checkout as it was; an editable install alone puts
them into src/normd/_proto, where git ignores them.
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
FILES = (
    *(f"normd/v1/{name}.proto" for name in ("norm", "tensor", "normalizer", "sessions", "shared_memory")),
    *(f"google/rpc/{name}.proto" for name in ("status", "error_details")),
)

MODULE = '''"""The messages of {file}."""

from normd._proto import _pool

_pool.fill(__name__, "{file}")
'''


def proto_folder() -> pathlib.Path:
    for folder in (HERE / "proto", HERE.parent.parent / "proto"):
        if (folder / "normd").is_dir():
            return folder
    raise SystemExit(
        "normd is built from a checkout of its repository, or from an sdist: there are no .proto files in "
        f"{HERE / 'proto'} and {HERE.parent.parent / 'proto'}. pip before 21.3 copies client/python alone to a folder of "
        "its own: pip 21.3 or later is needed (pip install --upgrade pip)"
    )


def generate(package: pathlib.Path) -> None:
    """Writes the descriptors, and NAME_pb2.py and .pyi for each file, to the folder `package`, which is normd._proto."""
    import grpc_tools
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    protos = proto_folder()
    with tempfile.TemporaryDirectory() as scratch:
        common = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        found = pathlib.Path(scratch, "set")
        arguments = [f"-I{protos}", f"-I{common}", "--include_imports", f"--descriptor_set_out={found}"]
        if protoc.main(["protoc", *arguments, f"--pyi_out={scratch}", *(str(protos / file) for file in FILES)]) != 0:
            raise RuntimeError("protoc failed")
        package.mkdir(parents=True, exist_ok=True)
        described = descriptor_pb2.FileDescriptorSet.FromString(found.read_bytes())
        lines = "".join(f"    {one.SerializeToString(deterministic=True)!r},\n" for one in described.file)
        text = f'"""The files of the contract, those first that others need."""\n\nFILES = (\n{lines})\n'
        (package / "_descriptors.py").write_text(text, encoding="utf-8")
        for file in FILES:
            module = package / f"{pathlib.Path(file).stem}_pb2.py"
            module.write_text(MODULE.format(file=file), encoding="utf-8")
            # The modules live in normd._proto: normd.v1 and google.rpc are of users' own stubs.
            text = pathlib.Path(scratch, file.replace(".proto", "_pb2.pyi")).read_text(encoding="utf-8")
            text = re.sub(r"\b(?:normd\.v1|google\.rpc)( import|\.\w+_pb2)", r"normd._proto\1", text)
            module.with_suffix(".pyi").write_text(text, encoding="utf-8")


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        editable = getattr(self, "editable_mode", False)
        generate((HERE / "src" if editable else pathlib.Path(self.build_lib)) / "normd" / "_proto")


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list) -> None:
        super().make_release_tree(base_dir, files)
        for file in FILES:
            target = pathlib.Path(base_dir, "proto", file)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(proto_folder() / file, target)


products = tempfile.mkdtemp(prefix="normd-build.")
atexit.register(shutil.rmtree, products, ignore_errors=True)
setup(
    cmdclass={"build_py": BuildPy, "sdist": Sdist},
    options={"build": {"build_base": products}, "egg_info": {"egg_base": products}},
)
