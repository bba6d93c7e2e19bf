"""An identity transform that is deployed between topics of its own."""

from __future__ import annotations

from support.streams.transform_job import unique
from wasmline.control import DeploymentSpec, deploy
from wasmline.digests import digest_of
from wasmline.kafka import KafkaConfig, Topics
from wasmline.testing.guests import guest


def deploy_identity(config: KafkaConfig, partitions: int = 2) -> DeploymentSpec:
    """Create an input topic with ``partitions`` and an output topic, and deploy the identity between them."""
    wasm, name = guest(), unique("identity")
    source, target = f"{name}.in", f"{name}.out"
    Topics(config).create(source, partitions)
    Topics(config).create(target, 2)
    spec = DeploymentSpec(
        name=name,
        version="1.0.0",
        digest=digest_of(wasm),
        input_topic=source,
        output_topics=(target,),
    )
    deploy(config, spec, wasm)
    return spec
