import subprocess
import sys


def test_importing_the_package_loads_neither_spark_nor_xgboost() -> None:
    program = "import sys, wasmline.training; print({'pyspark', 'xgboost', 'pandas', 'matplotlib'} & set(sys.modules))"
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    done = subprocess.run([sys.executable, "-c", program], env=path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
