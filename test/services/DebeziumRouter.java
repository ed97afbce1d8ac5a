import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.data.Envelope;
import io.debezium.data.Json;
import io.debezium.data.Uuid;
import io.debezium.time.MicroTimestamp;
import io.debezium.time.ZonedTimestamp;
import io.debezium.transforms.outbox.EventRouter;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * What Debezium's outbox router makes of rows of outbox_messages: a line of JSON for each on
 * standard input. The arguments are the router's settings, as KEY=VALUE; ts_ms=MILLISECONDS is when
 * Debezium has seen the rows, otherwise now.
 */
public class DebeziumRouter {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Schema SOURCE =
        SchemaBuilder.struct().name("source").field("table", Schema.STRING_SCHEMA).build();

    public static void main(String[] arguments) throws IOException {
        Map<String, String> settings = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        String seen = settings.remove("ts_ms");
        BufferedReader rows =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (EventRouter<SourceRecord> router = new EventRouter<>()) {
            router.configure(settings);
            for (String line; (line = rows.readLine()) != null; ) {
                long at = seen == null ? System.currentTimeMillis() : Long.parseLong(seen);
                JsonNode routed = route(router, JSON.readTree(line), Instant.ofEpochMilli(at));
                out.println(JSON.writeValueAsString(routed));
            }
        }
    }

    private static ObjectNode route(EventRouter<SourceRecord> router, JsonNode row, Instant at) {
        try {
            return describe(router.apply(inserted(row, at)));
        } catch (ConnectException problem) {
            return JSON.createObjectNode().put("error", problem.getMessage());
        }
    }

    /** As the connector hands it over: an event of operation c, with the row in "after". */
    private static SourceRecord inserted(JsonNode row, Instant at) {
        SchemaBuilder builder = SchemaBuilder.struct().name("outbox.public.outbox_messages.Value");
        row.properties().forEach(
            column -> builder.field(column.getKey(), type(column.getKey(), column.getValue())));
        Schema schema = builder.build();
        Struct after = new Struct(schema);
        row.properties().forEach(column -> after.put(
            column.getKey(), value(column.getValue(), schema.field(column.getKey()).schema())));
        Envelope envelope = Envelope.defineSchema()
            .withName("outbox.public.outbox_messages.Envelope").withRecord(schema)
            .withSource(SOURCE).build();
        Struct source = new Struct(SOURCE).put("table", "outbox_messages");
        return new SourceRecord(Map.of(), Map.of(), "outbox.public.outbox_messages", null, null,
            envelope.schema(), envelope.create(after, source, at));
    }

    /** The connector's type for a column; a number for occurred_at stands for no time zone. */
    private static Schema type(String column, JsonNode value) {
        return switch (column) {
            case "tracking_id" -> Uuid.builder().optional().build();
            case "payload", "metadata" -> Json.builder().optional().build();
            case "occurred_at" ->
                value.isNumber() ? MicroTimestamp.schema() : ZonedTimestamp.schema();
            case "id", "tenant_id" -> Schema.OPTIONAL_INT64_SCHEMA;
            case "event_version" -> Schema.OPTIONAL_INT16_SCHEMA;
            default -> Schema.OPTIONAL_STRING_SCHEMA;
        };
    }

    private static Object value(JsonNode value, Schema type) {
        if (value.isNull())
            return null;
        return switch (type.type()) {
            case INT64 -> value.asLong();
            case INT16 -> (short) value.asInt();
            default -> value.asText();
        };
    }

    private static ObjectNode describe(SourceRecord record) {
        if (record == null)
            return JSON.createObjectNode();
        ObjectNode node = JSON.createObjectNode();
        node.put("topic", record.topic());
        node.set("partition", JSON.valueToTree(record.kafkaPartition()));
        node.set("timestamp", JSON.valueToTree(record.timestamp()));
        node.set("key", plain(record.key()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(plain(header.value()));
        node.set("value", plain(record.value()));
        return node;
    }

    private static JsonNode plain(Object value) {
        if (!(value instanceof Struct struct))
            return JSON.valueToTree(value);
        ObjectNode node = JSON.createObjectNode();
        struct.schema().fields().forEach(field -> node.set(field.name(), plain(struct.get(field))));
        return node;
    }
}
