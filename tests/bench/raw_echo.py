"""The raw limit of Kafka: consume -> produce in transactions of up to 1,000 records, 12 partitions. Prints one JSON object."""

from __future__ import annotations

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

COUNT, PARTITIONS, BATCH = 40_000, 12, 1000


def main(bootstrap: str) -> None:
    """Fill a topic, then echo it."""
    server: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    source, target = (f"raw-{uuid.uuid4().hex[:8]}-{part}" for part in ("in", "out"))
    admin = AdminClient(server)
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, target)]).values():
        future.result(30)
    seed = Producer(server | {"linger.ms": 20})
    for n in range(COUNT):
        seed.produce(source, b"y" * 300, f"k{n % 200}")
        if n % 5000 == 0:
            seed.flush()
    seed.flush()
    consumer = Consumer(server | {"group.id": source, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    producer = Producer(server | {"transactional.id": source, "retry.backoff.ms": 2, "linger.ms": 1})
    producer.init_transactions()
    consumer.subscribe([source])
    seen, began, used = 0, 0.0, 0.0
    while seen < COUNT:
        messages = consumer.consume(BATCH, 0.05)
        if messages and not began:
            began, used = time.perf_counter(), time.process_time()
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), message.key())
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
        producer.commit_transaction()
        seen += len(messages)
    took, cpu = time.perf_counter() - began, time.process_time() - used
    sys.stdout.write(json.dumps({"per_s": round(COUNT / took), "cpu_s_per_1000": round(cpu / COUNT * 1000, 4)}))
    consumer.close()


main(sys.argv[1])
