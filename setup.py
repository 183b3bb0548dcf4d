"""Compiles our C and lays out a wheel; everything else is in pyproject.toml.

The libraries have a plain C interface, so one wheel serves every Python on a platform. A wheel for
another platform: `pip wheel . --no-deps --config-settings=--build-option=--plat-name=TAG`, where
TAG is such as `macosx_11_0_arm64`.
"""

import os
import re
import runpy
import sys
from pathlib import Path

from setuptools import Extension, find_namespace_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# By its path: to import it would import the package, whose dependencies are not there yet.
BUILD = runpy.run_path("nats_transform/kernel/build.py")

# The folders beside the library have names, such as `jobs`, that a user's own project may have
# too. A wheel therefore holds them as nats_transform.jobs and so on, and their imports say so. A
# checkout (an editable install) keeps them where they are, for type checkers and tests.
FOLDERS = ("cli", "expectations", "jobs", "orchestration")
IN_PLACE = "editable_wheel" in sys.argv
IMPORT = re.compile(rf"^(\s*(?:from|import) )(?=(?:{'|'.join(FOLDERS)})\b)", re.MULTILINE)
BESIDE = find_namespace_packages(
    include=[pattern for name in FOLDERS for pattern in (name, f"{name}.*")]
)


class BuildModules(build_py):
    """Copies the modules into a wheel, with the imports that hold there."""

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        outfile, copied = super().build_module(module, module_file, package)
        if not IN_PLACE:
            text = Path(outfile).read_text(encoding="utf-8")
            Path(outfile).write_text(IMPORT.sub(r"\1nats_transform.", text), encoding="utf-8")
        return outfile, copied


class Compile(build_ext):
    """Compiles with the compiler of ziglang; setuptools says where to, in place or for a wheel."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"

    def copy_file(self, infile: str, outfile: str, *args: object, **kwargs: object) -> None:
        """Puts it in place whole or not at all: half a library would crash whoever loads it."""
        super().copy_file(infile, f"{outfile}.new", *args, **kwargs)
        os.replace(f"{outfile}.new", outfile)

    def build_extension(self, ext: Extension) -> None:
        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        platform = self.get_finalized_command("bdist_wheel").plat_name
        try:
            folder = Path(ext.sources[0]).parent
            BUILD["compile_library"](output, folder, Path(self.build_temp), platform)
        except BUILD["NotCompiled"] as error:
            raise SystemExit(str(error)) from None


class Wheel(bdist_wheel):
    """A wheel for any Python 3 of a platform."""

    def finalize_options(self) -> None:
        self.plat_name = self.plat_name or BUILD["platform_tag"]()
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", self.plat_name


inside = "" if IN_PLACE else "nats_transform."
setup(
    cmdclass={"build_ext": Compile, "build_py": BuildModules, "bdist_wheel": Wheel},
    ext_modules=[
        Extension(f"{folder.replace('/', '.')}.{name}", sorted(map(str, Path(folder).glob("*.c"))))
        for name, folder in BUILD["LIBRARIES"].items()
    ],
    packages=[
        *find_namespace_packages(include=["nats_transform", "nats_transform.*"]),
        *(inside + name for name in BESIDE),
    ],
    package_dir={} if IN_PLACE else {inside + name: name.replace(".", "/") for name in BESIDE},
)
