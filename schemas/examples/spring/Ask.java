import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.requestreply.RequestReplyFuture;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.kafka.support.TopicPartitionOffset;

/**
 * Sends one request for each KEY to the dispatcher by Spring's ReplyingKafkaTemplate and prints the replies, a line each: key, partition
 * and offset of the request, the reply's value, and its correlation id in hexadecimal digits, with tabs between them.
 *
 * <p>All replies come to one partition, which this program alone reads: the template asks for it in the headers kafka_replyTopic and
 * kafka_replyPartition. The topic must be the default one, or one of topics.reply_topics in the workers' configuration.
 *
 * <pre>
 * mvn dependency:copy-dependencies
 * java -cp 'target/dependency/*' Ask.java localhost:9092 dispatcher.requests team.replies 0 '{"upstream": "openai", ...}' apikey:team-a
 * </pre>
 */
public final class Ask {
    private static final Duration REPLY_TIMEOUT = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 6) {
            System.err.println("usage: java -cp 'target/dependency/*' Ask.java BROKERS REQUESTS REPLIES REPLY_PARTITION VALUE KEY...");
            System.exit(2);
        }
        List<String> given = List.of(arguments);
        byte[] value = given.get(4).getBytes(UTF_8);
        var template = template(given.get(0), new TopicPartition(given.get(2), Integer.parseInt(given.get(3))));
        template.afterPropertiesSet(); // Spring does this and the next itself where the template is a bean
        try {
            template.start();
            Map<String, RequestReplyFuture<byte[], byte[], byte[]>> sent = new LinkedHashMap<>();
            for (String key : given.subList(5, given.size())) {
                sent.put(key, template.sendAndReceive(new ProducerRecord<>(given.get(1), key.getBytes(UTF_8), value)));
            }
            List<String> lines = new ArrayList<>();
            for (var entry : sent.entrySet()) {
                lines.add(line(entry.getKey(), entry.getValue()));
            }
            lines.forEach(System.out::println);
        } finally {
            template.stop();
            template.destroy();
            template.getProducerFactory().reset(); // closes the producer
        }
    }

    private static ReplyingKafkaTemplate<byte[], byte[], byte[]> template(String brokers, TopicPartition replies) {
        Map<String, Object> producer = Map.of(
                "bootstrap.servers", brokers,
                "enable.idempotence", true, // a plain producer's retries change the order
                "acks", "all");
        Map<String, Object> consumer = Map.of(
                "bootstrap.servers", brokers,
                "isolation.level", "read_committed", // Java's default would read the replies of aborted transactions, too
                "enable.auto.commit", false);
        var factory = new DefaultKafkaConsumerFactory<>(consumer, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        // The end as it is before anything is sent: a reply that comes at once is not missed, as it could be with SeekPosition.END, which
        // is looked up some time after the start. An assigned partition: no group comes to be.
        long end;
        try (var reader = factory.createConsumer("not-used", "ends")) {
            end = reader.endOffsets(List.of(replies)).get(replies);
        }
        var properties = new ContainerProperties(new TopicPartitionOffset(replies.topic(), replies.partition(), end));
        properties.setAckMode(ContainerProperties.AckMode.MANUAL); // and nothing acknowledges: no position is committed
        properties.setGroupId("not-used");
        var container = new KafkaMessageListenerContainer<byte[], byte[]>(factory, properties);
        var template = new ReplyingKafkaTemplate<>(
                new DefaultKafkaProducerFactory<>(producer, new ByteArraySerializer(), new ByteArraySerializer()), container);
        template.setDefaultReplyTimeout(REPLY_TIMEOUT);
        return template;
    }

    private static String line(String key, RequestReplyFuture<byte[], byte[], byte[]> request) throws Exception {
        var place = request.getSendFuture().get(REPLY_TIMEOUT.toSeconds(), TimeUnit.SECONDS).getRecordMetadata();
        var reply = request.get(REPLY_TIMEOUT.toSeconds(), TimeUnit.SECONDS);
        byte[] correlation = reply.headers().lastHeader(KafkaHeaders.CORRELATION_ID).value();
        return String.join(
                "\t",
                key,
                String.valueOf(place.partition()),
                String.valueOf(place.offset()),
                new String(reply.value(), UTF_8),
                HexFormat.of().formatHex(correlation));
    }
}
