import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of groups, one thread each: reads {"join": id, "topics": [...] or "pattern": "...", "settings": {...}} and {"leave": id}
 * from standard input, and tells after each poll that changed something what the member owns, received and committed.
 */
public class Members {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Set<String> LEAVING = ConcurrentHashMap.newKeySet();

    public static void main(String[] arguments) throws Exception {
        try (var in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode command = JSON.readTree(line);
                if (command.has("join")) {
                    String id = command.get("join").asText();
                    LEAVING.remove(id);
                    new Thread(() -> run(id, command), id).start();
                } else {
                    LEAVING.add(command.get("leave").asText());
                }
            }
        }
        System.exit(0);
    }

    static void run(String id, JsonNode command) {
        try {
            consume(id, command);
            tell(id, Map.of("left", true));
        } catch (Throwable error) {
            tell(id, Map.of("left", true, "error", error.toString()));
        }
    }

    static void consume(String id, JsonNode command) {
        var settings = new Properties();
        command.get("settings").fields().forEachRemaining(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (command.has("pattern")) {
                consumer.subscribe(Pattern.compile(command.get("pattern").asText()));
            } else {
                List<String> topics = new ArrayList<>();
                command.get("topics").forEach(topic -> topics.add(topic.asText()));
                consumer.subscribe(topics);
            }
            Set<TopicPartition> owned = null;
            while (!LEAVING.contains(id)) {
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                List<Object> records = new ArrayList<>();
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    records.add(List.of(record.topic(), record.partition(), record.offset()));
                    next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                Map<String, Object> line = new LinkedHashMap<>();
                if (!records.isEmpty()) line.put("records", records);
                if (!consumer.assignment().equals(owned)) {
                    owned = Set.copyOf(consumer.assignment());
                    line.put("assignment", owned.stream().map(part -> List.of(part.topic(), part.partition())).toList());
                }
                if (!line.isEmpty()) tell(id, line);
                if (!next.isEmpty() && commit(consumer, next)) {
                    tell(id, Map.of("committed", next.entrySet().stream().map(entry ->
                        List.of(entry.getKey().topic(), entry.getKey().partition(), entry.getValue().offset())).toList()));
                }
            }
        }
    }

    /** Whether it was acknowledged; one that meets a rebalance is made again with the next records. */
    static boolean commit(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> offsets) {
        try {
            consumer.commitSync(offsets);
            return true;
        } catch (CommitFailedException | RebalanceInProgressException later) {
            return false;
        }
    }

    static synchronized void tell(String id, Map<String, Object> what) {
        Map<String, Object> line = new LinkedHashMap<>(Map.of("id", id));
        line.putAll(what);
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
