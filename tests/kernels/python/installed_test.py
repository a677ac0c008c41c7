"""The C interface as others use it: installed, found by CMake, compiled as C and as C++."""

import os
import pathlib
import re
import subprocess

import pytest
from conftest import ROOT

BUILD = pathlib.Path(os.environ.get("NORMD_GOLDEN_BUILD", "NORMD_GOLDEN_BUILD, which is not set,"))
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C CXX)
find_package(normd_kernels REQUIRED)
foreach(language c cc)
  add_executable(user_${language} user.${language})
  target_link_libraries(user_${language} PRIVATE normd::kernels)
  target_compile_options(user_${language} PRIVATE -Wall -Wextra -Werror)
endforeach()
set_target_properties(user_c PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF)
"""
PROGRAM = """
#include <normd/golden.h>
#include <stdio.h>

int main(void) {
%s
  printf("%%.9g %%.9g\\n", (double)y[0], (double)y[3]);
  call.spec.eps_mode = 9;
  if (normd_golden_run(&call, error, sizeof error) != 1) return 1;
  puts(error);
  return 0;
}
"""


def run(*command, **rest):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **rest)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def example():
    """The example of the header's comment."""
    text = (ROOT / "kernels" / "python" / "golden.h").read_text(encoding="utf-8")
    return "\n".join(line[2:] for line in re.findall(r"^//   .*$", text, re.MULTILINE))


def test_an_installed_library_serves_c_and_cpp(tmp_path, example):
    if not (BUILD / "cmake_install.cmake").exists():
        pytest.skip(f"{BUILD} is no build folder of CMake, which alone can install")
    run("cmake", "--install", BUILD, "--component", "kernels", "--prefix", tmp_path / "prefix")
    assert [path.name for path in (tmp_path / "prefix" / "include" / "normd").iterdir()] == ["golden.h"]
    # C++ has no compound literals of C: there the tensor is a braced list.
    for language, text in (("c", example), ("cc", example.replace("(normd_golden_tensor){", "{").replace("{0}", "{}"))):
        (tmp_path / f"user.{language}").write_text(PROGRAM % text)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}")
    run("cmake", "--build", tmp_path / "build")
    for language in ("c", "cc"):
        out = run(tmp_path / "build" / f"user_{language}")
        assert out == "0.365148336 1.46059334\neps_mode is 9; it must be between 0 and 3\n", language
