"""A broker with Kafka's StandardAuthorizer, and users of it with exactly the ACLs that they are granted."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, though not in its __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from wasmline.control.acls import Acl
from wasmline.kafka import KafkaConfig
from wasmline.local import LocalKafka, SaslSsl
from wasmline.local.process import wait_until
from wasmline.local.server_properties import SMALL
from wasmline.testing.kafka import pkcs8_key

ADMIN = "admin"
PASSWORD = "word"
MAX_USERS = 400
TIMEOUT_S = 15.0

RESOURCES = {
    "Topic": ResourceType.TOPIC,
    "Group": ResourceType.GROUP,
    "TransactionalId": ResourceType.TRANSACTIONAL_ID,
}

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Brokers connect to each other, and to the controller, without a password.
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
}


class AuthorizedKafka:
    """A broker that permits nothing but what was granted; ``config`` is that of an administrator."""

    def __init__(self, local: LocalKafka, authority: Path) -> None:
        self.local = local
        self._authority = authority
        self._numbers = itertools.count()
        self.config = self._as(ADMIN)
        self._admin = AdminClient(self.config.client())

    def user(self, acls: Collection[Acl]) -> KafkaConfig:
        """Return the configuration of a new user with these ACLs, once the broker knows them."""
        name = f"user{next(self._numbers)}"
        bindings = [_binding(acl, operation, f"User:{name}") for acl in acls for operation in acl.operations]
        if bindings:
            for answer in self._admin.create_acls(bindings).values():
                answer.result(TIMEOUT_S)
        theirs = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY,  # type: ignore[arg-type]  # None: any name
            f"User:{name}", None, AclOperation.ANY, AclPermissionType.ANY,  # type: ignore[arg-type]  # any host
        )  # fmt: skip
        assert wait_until(lambda: len(self._admin.describe_acls(theirs).result(TIMEOUT_S)) == len(bindings), TIMEOUT_S)
        return self._as(name)

    def _as(self, name: str) -> KafkaConfig:
        return KafkaConfig(
            {
                "bootstrap.servers": self.local.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": name,
                "sasl.password": PASSWORD,
                "ssl.ca.location": str(self._authority),
            }
        )


@contextmanager
def authorized_kafka(folder: Path) -> Iterator[AuthorizedKafka]:
    """Start a broker with an authorizer; stop it at the end."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = authority.issue_cert("127.0.0.1", "localhost")
    (folder / "server.pem").write_bytes(b"".join(each.bytes() for each in server.cert_chain_pems))
    (folder / "server.key").write_bytes(pkcs8_key(server.private_key_pem.bytes()))
    users = {ADMIN: PASSWORD, **{f"user{number}": PASSWORD for number in range(MAX_USERS)}}
    security = SaslSsl(mechanism="PLAIN", users=users, certificate=folder / "server.pem", key=folder / "server.key")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in AUTHORIZER.items():
            patch.setitem(SMALL, name, value)
        with LocalKafka(folder / "data", security=security) as local:
            yield AuthorizedKafka(local, folder / "ca.pem")


def _binding(acl: Acl, operation: str, principal: str) -> AclBinding:
    return AclBinding(
        RESOURCES[acl.resource],
        acl.name,
        ResourcePatternType.PREFIXED if acl.is_prefixed else ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation[operation.upper()],
        AclPermissionType.ALLOW,
    )
