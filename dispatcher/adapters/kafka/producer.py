"""librdkafka's producer, without the one surprise of its binding."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer

# A fatal error (fenced, or its sequence is lost) is not told to the error callback: confluent-kafka 2.16 raises it out of whatever call
# serves the callbacks. A report that is delivered in the same call then finds that exception on its way, and what it asks the client
# raises SystemError.
RAISED = (KafkaException, SystemError)


class SteadyProducer(Producer):
    """Its `poll` and `flush` never raise. A fatal error shows in the reports of what was produced, and in every later step."""

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks; how many."""
        try:
            return super().poll(timeout)
        except RAISED:
            return 0

    def flush(self, timeout: float = -1) -> int:
        """Wait for reports; how many messages are left."""
        try:
            return super().flush(timeout)
        except RAISED:
            return len(self)
