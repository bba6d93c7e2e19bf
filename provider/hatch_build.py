"""Compiles the C of the package, for wheels of one platform each; where there is no compiler, the wheel is of any.

The compiler is that of the wheel ``ziglang``, which knows the C libraries of all platforms, so that a wheel for one can
be built on another: ``WASMLINE_PLATFORM=macos-arm64 pip wheel .``
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "wasmline/kafka"
SOURCE = "compiled_columns.c"
LIBRARY = "libcompiled_columns.so.1"

PLATFORMS = {
    "linux-x86_64": ("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64"),
    "linux-aarch64": ("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"),
    "musl-x86_64": ("x86_64-linux-musl", "musllinux_1_2_x86_64"),
    "musl-aarch64": ("aarch64-linux-musl", "musllinux_1_2_aarch64"),
    "macos-x86_64": ("x86_64-macos.11.0", "macosx_11_0_x86_64"),
    "macos-arm64": ("aarch64-macos.11.0", "macosx_11_0_arm64"),
}
"""The compiler's target and the wheel's platform tag, by system and machine."""

FLAGS = (
    "-std=c11",
    "-O2",
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-mcpu=baseline",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
)


def this_platform() -> str:
    """Return the key of the running interpreter in PLATFORMS, or a name that is not there."""
    systems = {"Linux": "linux" if platform.libc_ver()[0] == "glibc" else "musl", "Darwin": "macos"}
    return f"{systems.get(platform.system(), platform.system())}-{platform.machine()}"


class CustomBuildHook(BuildHookInterface[Any]):
    """hatchling's hook of each build: https://hatch.pypa.io/latest/plugins/build-hook/custom/."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into the wheel, or beside the source where the package is installed from its checkout."""
        name = os.environ.get("WASMLINE_PLATFORM") or this_platform()
        target, tag = PLATFORMS.get(name, (None, None))
        if target is None or importlib.util.find_spec("ziglang") is None:
            self.app.display_warning(f"no compiler for {name}: records are copied without compiled code")
            return
        package = Path(self.root, "provider", FOLDER)
        built = package / LIBRARY
        if version != "editable":
            self._scratch = Path(tempfile.mkdtemp())
            built = self._scratch / LIBRARY
            build_data["force_include"][str(built)] = f"{FOLDER}/{LIBRARY}"
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target]
        subprocess.run([*compiler, *FLAGS, "-o", str(built), str(package / SOURCE)], check=True)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled into a wheel."""
        if scratch := getattr(self, "_scratch", None):
            shutil.rmtree(scratch)
