"""From a transform project, a folder with ``transform.yaml`` and sources, to a tested WebAssembly module."""

from wasmline.build.builder import build
from wasmline.build.project import TransformProject, load_project
from wasmline.build.publish import publish_build
from wasmline.build.report import BuildReport
from wasmline.build.samples import SampleReport, bless, run_samples
from wasmline.build.scaffold import scaffold

__all__ = [
    "BuildReport",
    "SampleReport",
    "TransformProject",
    "bless",
    "build",
    "load_project",
    "publish_build",
    "run_samples",
    "scaffold",
]
