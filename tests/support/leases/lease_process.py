"""A process that works on one lease: a pickled KafkaConfig and Lease on its input. It prints why the lease was over."""

from __future__ import annotations

import pickle
import sys

from wasmline.leases.lease_worker import LeaseWorker

if __name__ == "__main__":
    config, lease = pickle.load(sys.stdin.buffer)
    worker = LeaseWorker(config, lease)
    for _ in worker.run():
        pass
    sys.stdout.write(worker.reason)
