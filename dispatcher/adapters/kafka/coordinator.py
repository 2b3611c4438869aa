"""Questions to a group's coordinator, by the admin client."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription  # `admin` shows it, but not to a strict type checker

# librdkafka 2.16 ends the whole process (an assertion in rd_kafka_enq_once_del_source_return) where a request to a coordinator was over
# its time before the coordinator was found, and it is found afterwards: the request that is given up is failed a second time. So the
# request never is over its time, and whoever waits for it gives up by himself. This is the longest that librdkafka takes, an hour.
REQUEST_S = 3600.0


def describe_group(client: AdminClient, group: str, patience_s: float) -> ConsumerGroupDescription:
    """Give what the coordinator says of a group. Raises KafkaException, or TimeoutError of futures after `patience_s`.

    After a time-out the client is to be thrown away, and the request goes with it: else it is kept until its hour is over.
    """
    answer: ConsumerGroupDescription = client.describe_consumer_groups([group], request_timeout=REQUEST_S)[group].result(patience_s)
    return answer
