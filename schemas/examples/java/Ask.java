import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends one request for each KEY to the dispatcher and prints the replies as they come, a line each: key, partition and offset of the
 * request, and the reply's value, with tabs between them.
 *
 * <pre>
 * mvn dependency:copy-dependencies
 * java -cp 'target/dependency/*' Ask.java localhost:9092 dispatcher openai /models apikey:team-a
 * </pre>
 */
public final class Ask {
    private static final Duration REPLY_TIMEOUT = Duration.ofSeconds(60);

    private record Request(String key, RecordMetadata place) {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 5) {
            System.err.println("usage: java -cp 'target/dependency/*' Ask.java BROKERS PREFIX UPSTREAM PATH KEY...");
            System.exit(2);
        }
        List<String> given = List.of(arguments);
        String prefix = given.get(1);
        String value = "{\"upstream\": %s, \"path\": %s, \"method\": \"GET\"}".formatted(quoted(given.get(2)), quoted(given.get(3)));
        Map<String, Request> waiting = new HashMap<>();
        try (var producer = producer(given.get(0)); var consumer = consumer(given.get(0))) {
            // Before anything is sent: a reply that comes at once is not missed.
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions(consumer, prefix + ".replies"));
            for (String key : given.subList(4, given.size())) {
                String id = UUID.randomUUID().toString();
                var record = new ProducerRecord<>(prefix + ".requests", key.getBytes(UTF_8), value.getBytes(UTF_8));
                record.headers().add("ce_id", id.getBytes(UTF_8));
                waiting.put(id, new Request(key, producer.send(record).get()));
            }
            // A reply stands on the partition of its request's number. Assigned, not subscribed: no group comes to be.
            Set<TopicPartition> awaited = new HashSet<>();
            waiting.values().forEach(request -> awaited.add(new TopicPartition(prefix + ".replies", request.place().partition())));
            consumer.assign(awaited);
            awaited.forEach(partition -> consumer.seek(partition, ends.get(partition)));
            print(consumer, waiting);
        }
        if (!waiting.isEmpty()) {
            System.err.println("no reply within " + REPLY_TIMEOUT.toSeconds() + " s for: " + String.join(" ", waiting.keySet()));
            System.exit(4);
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String brokers) {
        // The keys' partitioner is Java's own, murmur2: no partitioner.class, and no null keys.
        Map<String, Object> properties = Map.of(
                "bootstrap.servers", brokers,
                "enable.idempotence", true, // a plain producer's retries change the order
                "acks", "all");
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String brokers) {
        Map<String, Object> properties = Map.of(
                "bootstrap.servers", brokers,
                "isolation.level", "read_committed", // Java's default would read the replies of aborted transactions, too
                "enable.auto.commit", false,
                "auto.offset.reset", "none");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> found = new ArrayList<>();
        consumer.partitionsFor(topic).forEach(info -> found.add(new TopicPartition(topic, info.partition())));
        return found;
    }

    private static void print(KafkaConsumer<byte[], byte[]> consumer, Map<String, Request> waiting) {
        long end = System.nanoTime() + REPLY_TIMEOUT.toNanos();
        while (!waiting.isEmpty() && System.nanoTime() < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                var id = record.headers().lastHeader("ce_causationid");
                Request request = id == null ? null : waiting.remove(new String(id.value(), UTF_8));
                if (request != null) {
                    RecordMetadata place = request.place();
                    System.out.printf(
                            "%s\t%d\t%d\t%s%n", request.key(), place.partition(), place.offset(), new String(record.value(), UTF_8));
                }
            }
        }
    }

    /** A Java text as JSON has it; without control characters, which neither an alias nor a path may have. */
    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
