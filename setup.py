"""Compiles our C when the project is installed; everything else is in pyproject.toml.

The libraries have a plain C interface, so one wheel serves every Python on a platform. A wheel for
another platform: `pip wheel . --no-deps --config-settings=--build-option=--plat-name=TAG`, where
TAG is such as `macosx_11_0_arm64`.
"""

import os
import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# By its path: to import it would import the package, whose dependencies are not there yet.
BUILD = runpy.run_path("nats_transform/kernel/build.py")


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


setup(
    cmdclass={"build_ext": Compile, "bdist_wheel": Wheel},
    ext_modules=[
        Extension(f"{folder.replace('/', '.')}.{name}", sorted(map(str, Path(folder).glob("*.c"))))
        for name, folder in BUILD["LIBRARIES"].items()
    ],
)
