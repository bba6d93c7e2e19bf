"""The key-parallel consumer: concurrency per key, not per partition."""
