"""Kafka: the only place that knows confluent-kafka."""
