"""Finds the sources that are shipped with the package."""

from __future__ import annotations

from pathlib import Path

from wasmline.errors import ToolchainMissing


def installed_folder(what: str, packaged: str, *, checkout: str) -> Path:
    """Return a folder inside the installed package, or the one below ``wasm_modules`` of the checkout it runs from.

    Raises ToolchainMissing.
    """
    package = Path(__file__).resolve().parents[1]
    folders = package / packaged, package.parents[1] / "wasm_modules" / checkout
    for folder in folders:
        if folder.is_dir():
            return folder
    raise ToolchainMissing(
        f"{what} are neither in {folders[0]} nor in {folders[1]}: install wasmline again",
        install="pip install --force-reinstall wasmline",
    )
