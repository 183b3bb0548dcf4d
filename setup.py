"""Compiles the kernel when the project is installed; everything else is in pyproject.toml.

The library has a plain C interface, so one wheel serves every Python on a platform. A wheel for
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
KERNEL = Path("nats_transform/kernel")
BUILD = runpy.run_path(str(KERNEL / "build.py"))


class BuildKernel(build_ext):
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
            BUILD["compile_kernel"](output, Path(self.build_temp), platform)
        except BUILD["NotCompiled"] as error:
            raise SystemExit(str(error)) from None


class KernelWheel(bdist_wheel):
    """A wheel for any Python 3 of a platform."""

    def finalize_options(self) -> None:
        self.plat_name = self.plat_name or BUILD["platform_tag"]()
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", self.plat_name


setup(
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": KernelWheel},
    ext_modules=[Extension("nats_transform.kernel.kernel", [str(p) for p in KERNEL.glob("*.c")])],
)
