"""Properties of librdkafka, by what they are to us: set by the product alone, or plain enough to be shown."""

from __future__ import annotations

# Properties that carry a guarantee: the product sets them, nobody else may (SURFACE: refused, not ignored).
RESERVED_PROPERTIES = frozenset(
    {
        "acks",
        "auto.commit.enable",
        "auto.offset.reset",
        "batch.size",
        "default.topic.config",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "message.max.bytes",
        "message.timeout.ms",
        "partition.assignment.strategy",
        "partitioner",
        "request.required.acks",
        "topic.partitioner",
        "transaction.timeout.ms",
        "transactional.id",
    }
)

# Properties whose value is no secret, by name or by ending. All others are masked wherever they are shown: a mistyped
# `sasl.pasword` holds a password, and no list of secret names would know it.
_PLAIN_PROPERTIES = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.type",
        "debug",
        "enable.ssl.certificate.verification",
        "log_level",
        "metadata.broker.list",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.method",
        "sasl.username",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
    }
)
_PLAIN_ENDINGS = (
    *(".bytes", ".cnt", ".count", ".enable", ".fails", ".family", ".kbytes", ".keytab", ".location", ".lookup", ".max", ".messages"),
    *(".ms", ".size"),
)


def is_plain_property(name: str) -> bool:
    """Tell a librdkafka property that may be shown."""
    return name in _PLAIN_PROPERTIES or name.endswith(_PLAIN_ENDINGS)
