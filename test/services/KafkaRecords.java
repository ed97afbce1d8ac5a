import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints the records of a topic, from the beginning, as lines of JSON:
 * KafkaRecords BOOTSTRAP TOPIC ISOLATION COUNT SECONDS. With a COUNT of 0 it ends where the topic
 * ended when it was started, with less than 0 never, otherwise after COUNT records. SECONDS is how
 * long it tries.
 */
public class KafkaRecords {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws IOException {
        int count = Integer.parseInt(arguments[3]);
        long deadline = System.nanoTime() + (long) (Double.parseDouble(arguments[4]) * 1e9);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "isolation.level", arguments[2],
            "allow.auto.create.topics", false, "fetch.max.wait.ms", 100);
        BufferedWriter out =
            new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            var partitions = consumer.partitionsFor(arguments[1]).stream()
                .map(info -> new TopicPartition(info.topic(), info.partition())).toList();
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.seekToBeginning(partitions);
            int seen = 0;
            while (count < 0 || System.nanoTime() < deadline) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records)
                    out.append(JSON.writeValueAsString(describe(record))).append('\n');
                out.flush();
                seen += records.count();
                boolean atEnd =
                    partitions.stream().allMatch(p -> consumer.position(p) >= ends.get(p));
                if (count == 0 ? atEnd : count > 0 && seen >= count)
                    return;
            }
            System.err.println("KafkaRecords: " + seen + " records, and the time is over");
            System.exit(1);
        }
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("partition", record.partition()).put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("timestamp_type", record.timestampType().name);
        node.put("key", text(record.key()));
        ArrayNode headers = node.putArray("headers");
        record.headers().forEach(
            header -> headers.addArray().add(header.key()).add(text(header.value())));
        node.put("value", text(record.value()));
        return node;
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
