"""How many tasks can run at once."""

from __future__ import annotations

from pyspark import SparkContext


def slots(context: SparkContext) -> int:
    """Return how many tasks the application's executors run at once, those included that it asked for and has not got.

    An executor that comes later counts where its number is ordered: ``spark.executor.instances``, ``spark.cores.max``.
    """
    conf = context.getConf()
    instances = int(conf.get("spark.executor.instances", "0"))
    ordered = max(instances * int(conf.get("spark.executor.cores", "1")), int(conf.get("spark.cores.max", "0")))
    return max(1, max(context.defaultParallelism, ordered) // int(conf.get("spark.task.cpus", "1")))
