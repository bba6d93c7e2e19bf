"""Builds and tests WebAssembly modules from transform projects: folders with ``transform.yaml`` and sources."""

from typing import TYPE_CHECKING

from wasmline.build.builder import build
from wasmline.build.project import TransformProject, load_project
from wasmline.build.publish import publish_build
from wasmline.build.report import BuildReport
from wasmline.build.samples import SampleReport, accept_samples, run_samples
from wasmline.build.scaffold import scaffold
from wasmline.renames import renamed

__all__ = [
    "BuildReport",
    "SampleReport",
    "TransformProject",
    "accept_samples",
    "build",
    "load_project",
    "publish_build",
    "run_samples",
    "scaffold",
]

if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)
