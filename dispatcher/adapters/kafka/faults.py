"""What Kafka's errors mean for a person: unreachable, wrong password, missing right. Values and server texts are not repeated."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from dispatcher.errors import BrokerAway, BrokerDenied, BrokerError, DispatcherError
from dispatcher.settings import Settings

_UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._NOENT,  # no metadata of what was asked about, and nobody to ask for some
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
# A partition's leader is another one than this client thinks, or not ready: another attempt helps. An admin client may never learn of it
# by itself (librdkafka 2.16 goes on sending the leader epoch that it knew before a restart), and must then be made anew.
MOVED = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,
    }
)
# Who keeps a group's positions, or a transaction, is another broker than this client thinks, or not ready. librdkafka says so too of one
# that it cannot reach.
_COORDINATION = frozenset({KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR})
# Another producer of the same transactional id, or the broker's sweep, has ended this one.
FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
_AUTHENTICATION = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
_TLS = frozenset({KafkaError._SSL})
RIGHTS = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the consumer group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
}


def error_of(failure: BaseException) -> KafkaError | None:
    """Take the KafkaError out of a KafkaException; None where there is none."""
    first = failure.args[0] if isinstance(failure, KafkaException) and failure.args else None
    return first if isinstance(first, KafkaError) else None


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that this came from is of no use any more. Only the first report carries the flag."""
    return error.code() == KafkaError._FATAL or error.code() in FENCED or error.fatal()


class Complaints:
    """What librdkafka reported in the background, by kind; hand `heard` to a client as its `on_error`.

    A call on a client that cannot log in fails with nothing but a time-out; why it does is told to the error callback alone.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._where = f" at {settings.kafka.bootstrap_servers}" if settings is not None else ""
        self._codes: set[int] = set()

    def heard(self, error: KafkaError) -> None:
        """Remember one error; safe from any thread, since adding to a set is one step."""
        self._codes.add(error.code())

    @property
    def are_there(self) -> bool:
        """Whether anything was reported since the last `forget`."""
        return bool(self._codes)

    def forget(self) -> None:
        """Take what was reported as over: Kafka has answered since."""
        self._codes.clear()

    def fault(self, failure: BaseException, doing: str) -> DispatcherError:
        """Say why `doing` (a clause such as "reading the topics") failed: the most telling of what is known."""
        if isinstance(failure, DispatcherError):
            return failure
        return self.explain(error_of(failure), doing, type(failure).__name__)

    def explain(self, error: KafkaError | None, doing: str, kind: str = "no answer") -> BrokerError:
        """Do what `fault` does for an error that was not raised but stood in an answer."""
        code = error.code() if error is not None else None
        known = self._known(code, doing)
        if known is not None:
            return known
        return BrokerError(
            f"{doing} failed: {error.name() if error is not None else kind}", "look this error code up in Kafka's protocol guide"
        )

    def _known(self, code: int | None, doing: str) -> BrokerError | None:
        """Name what is wrong; what was heard in the background only counts when the call itself says no more than "no answer"."""
        if code in RIGHTS:
            return BrokerDenied(f"{doing} failed: this user may not use {RIGHTS[code]}", "grant the right in Kafka's ACLs")
        if code is not None and code in MOVED - _UNREACHABLE:
            return BrokerAway(
                f"{doing} failed: a partition has no leader that answers ({KafkaError(code).name()})",
                "a broker may be down or starting: look at the cluster, then try again",
            )
        is_coordination = code in _COORDINATION
        silent = code is None or code in _UNREACHABLE or (is_coordination and bool(self._codes & _UNREACHABLE))
        codes = {code} | (self._codes if silent else set())
        if codes & _AUTHENTICATION:
            return BrokerError(
                f"Kafka{self._where} refused the login", "check security.protocol, sasl.mechanisms, sasl.username and sasl.password"
            )
        if codes & _TLS:
            return BrokerError(f"no TLS connection to Kafka{self._where}", "check security.protocol and the ssl.* properties")
        if silent:
            return BrokerAway(
                f"cannot reach Kafka{self._where}", "check kafka.bootstrap_servers (-b); `dispatcher broker up` starts a local one"
            )
        if code is not None and is_coordination:
            return BrokerAway(
                f"{doing} failed: its coordinator does not answer ({KafkaError(code).name()})",
                "a broker may be down or starting: look at the cluster, then try again",
            )
        return None
