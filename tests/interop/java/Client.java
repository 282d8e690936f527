import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What applications do with the Java client; `Client ADDRESS data|admin|group` prints a JSON line a step. */
public class Client {
    static final int RECORDS = 3000;
    static final long T0 = 1_750_000_000_000L;
    static final ObjectMapper JSON = new ObjectMapper();
    static String address;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        switch (arguments[1]) {
            case "data" -> data();
            case "admin" -> admin();
            case "group" -> step("group", Client::group);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    /** The step's result, or the error that it ended with. */
    static void step(String name, Callable<Object> body) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        try {
            line.put("result", body.call());
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            line.put("error", cause.getClass().getSimpleName());
            line.put("message", String.valueOf(cause.getMessage()));
        }
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    static <T> T get(Future<T> future) throws Exception {
        return future.get(20, TimeUnit.SECONDS);
    }

    static Map<String, Object> settings(String... pairs) {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("bootstrap.servers", address);
        all.put("default.api.timeout.ms", "20000");
        all.put("request.timeout.ms", "15000");
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }

    static KafkaProducer<byte[], byte[]> producer(String... pairs) {
        return new KafkaProducer<>(settings(pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String... pairs) {
        return new KafkaConsumer<>(settings(pairs), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Record i: every 7th without a key, every 11th without a value, two headers. */
    static ProducerRecord<byte[], byte[]> record(String topic, int partition, int i) {
        byte[] key = i % 7 == 0 ? null : bytes("key-" + i);
        byte[] value = i % 11 == 0 ? null : bytes(("value-" + i + " ").repeat(1 + i % 20));
        var record = new ProducerRecord<>(topic, partition, T0 + i, key, value);
        record.headers().add("i", bytes("" + i)).add("none", null);
        return record;
    }

    static String shown(byte[] key, byte[] value, long time, Iterable<org.apache.kafka.common.header.Header> headers) {
        var text = new StringBuilder();
        text.append(key == null ? "-" : new String(key)).append('|').append(value == null ? "-" : new String(value)).append('|').append(time);
        for (var header : headers) text.append('|').append(header.key()).append('=').append(header.value() == null ? "-" : new String(header.value()));
        return text.toString();
    }

    // --- producing and reading ---

    static void data() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) step(codec, () -> roundTrip(codec));
        step("long poll", Client::longPoll);
        step("acks", Client::acks);
        step("too large", () -> {
            try (var producer = producer("max.request.size", "4000000", "buffer.memory", "8000000")) {
                return get(producer.send(new ProducerRecord<>("java-none", 0, null, new byte[2_000_000]))).offset();
            }
        });
    }

    static Object roundTrip(String codec) throws Exception {
        String topic = "java-" + codec;
        try (var admin = Admin.create(settings())) {
            get(admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all());
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = producer("compression.type", codec, "linger.ms", "5")) {
            for (int i = 0; i < RECORDS; i++) sent.add(producer.send(record(topic, i % 3, i)));
            producer.flush();
        }
        boolean inOrder = true;
        for (int i = 0; i < RECORDS; i++) {
            RecordMetadata at = get(sent.get(i));
            inOrder &= at.offset() == i / 3 && at.partition() == i % 3;
        }
        var partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2));
        int count = 0;
        int same = 0;
        Map<String, Object> result = new TreeMap<>();
        try (var consumer = consumer("max.partition.fetch.bytes", "20000")) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (long end = System.currentTimeMillis() + 20_000; count < RECORDS && System.currentTimeMillis() < end; ) {
                for (ConsumerRecord<byte[], byte[]> got : consumer.poll(Duration.ofMillis(200))) {
                    var put = record(topic, got.partition(), (int) (got.offset() * 3 + got.partition()));
                    count++;
                    if (shown(got.key(), got.value(), got.timestamp(), got.headers()).equals(shown(put.key(), put.value(), put.timestamp(), put.headers()))) same++;
                }
            }
            consumer.seek(partitions.get(1), 567);
            consumer.pause(List.of(partitions.get(0), partitions.get(2)));
            long first = -1;
            for (int i = 0; i < 50 && first < 0; i++) {
                for (var got : consumer.poll(Duration.ofMillis(200))) {
                    if (first < 0) first = got.offset();
                }
            }
            result.put("first after seek", first);
            result.put("position", consumer.position(partitions.get(0)));
            result.put("ends", new TreeSet<>(consumer.endOffsets(partitions).values()));
            result.put("beginnings", new TreeSet<>(consumer.beginningOffsets(partitions).values()));
            var at = consumer.offsetsForTimes(Map.of(partitions.get(0), T0 + 1501, partitions.get(1), T0 + 999_999));
            result.put("by time", at.get(partitions.get(0)).offset() + "@" + (at.get(partitions.get(0)).timestamp() - T0));
            result.put("after the last", at.get(partitions.get(1)));
        }
        result.put("acknowledged in order", inOrder);
        result.put("read", count);
        result.put("as sent", same);
        return result;
    }

    /** A waiting fetch is answered when a record arrives, long before its 5 s are over. */
    static Object longPoll() throws Exception {
        var partition = new TopicPartition("java-none", 2);
        try (var consumer = consumer("fetch.max.wait.ms", "5000"); var producer = producer()) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            consumer.poll(Duration.ofMillis(500));
            get(producer.send(new ProducerRecord<>("java-none", 2, null, bytes("now"))));
            long sent = System.nanoTime();
            int got = consumer.poll(Duration.ofSeconds(8)).count();
            return Map.of("got", got, "soon", System.nanoTime() - sent < 3_000_000_000L);
        }
    }

    static Object acks() throws Exception {
        Map<String, Object> offsets = new TreeMap<>();
        for (String acks : List.of("0", "1", "all")) {
            try (var producer = producer("acks", acks, "enable.idempotence", "false")) {
                offsets.put(acks, get(producer.send(new ProducerRecord<>("java-acks", 0, null, bytes(acks)))).offset());
            }
        }
        return offsets;
    }

    /** A consumer with a group: it joins, reads all, commits, and the next one goes on from there. */
    static Object group() throws Exception {
        try (var producer = producer()) {
            for (int i = 0; i < 300; i++) producer.send(record("java-group", 0, i));
        }
        Map<String, Object> result = new TreeMap<>();
        for (String turn : List.of("first", "second")) {
            int count = 0;
            try (var consumer = consumer("group.id", "java-group", "auto.offset.reset", "earliest", "enable.auto.commit", "false")) {
                consumer.subscribe(List.of("java-group"));
                long end = System.currentTimeMillis() + (turn.equals("first") ? 20_000 : 4_000);
                while (count < 300 && System.currentTimeMillis() < end) count += consumer.poll(Duration.ofMillis(200)).count();
                consumer.commitSync();
                result.put(turn, count);
            }
        }
        return result;
    }

    // --- administration ---

    static ConfigResource topicResource(String name) {
        return new ConfigResource(ConfigResource.Type.TOPIC, name);
    }

    static Object setting(Admin admin, String topic, String name) throws Exception {
        ConfigEntry entry = get(admin.describeConfigs(List.of(topicResource(topic))).all()).get(topicResource(topic)).get(name);
        return entry.value() + " " + entry.source();
    }

    static Object alter(Admin admin, String topic, String name, String value, AlterConfigOp.OpType type) throws Exception {
        Collection<AlterConfigOp> change = List.of(new AlterConfigOp(new ConfigEntry(name, value), type));
        get(admin.incrementalAlterConfigs(Map.of(topicResource(topic), change)).all());
        return setting(admin, topic, name);
    }

    static void admin() throws Exception {
        try (var admin = Admin.create(settings()); var producer = producer()) {
            topics(admin);
            configs(admin);
            for (int i = 0; i < 30; i++) get(producer.send(record("adm", 0, i)));
            offsets(admin);
            cluster(admin);
            step("deleteTopics", () -> {
                get(admin.deleteTopics(List.of("adm")).all());
                return get(admin.listTopics().names()).contains("adm");
            });
            step("made again", () -> {
                get(admin.createTopics(List.of(new NewTopic("adm", 1, (short) 1))).all());
                return get(admin.listOffsets(Map.of(new TopicPartition("adm", 0), OffsetSpec.latest())).all()).values().iterator().next().offset();
            });
            step("delete unknown", () -> get(admin.deleteTopics(List.of("never-was")).all()));
        }
    }

    static void topics(Admin admin) throws Exception {
        step("createTopics", () -> {
            var topic = new NewTopic("adm", Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "86400000000"));
            var made = admin.createTopics(List.of(topic));
            get(made.all());
            var config = get(made.config("adm"));
            return get(made.numPartitions("adm")) + " " + get(made.replicationFactor("adm")) + " " + config.get("retention.ms").value() + " "
                + get(made.topicId("adm")).equals(get(admin.describeTopics(List.of("adm")).allTopicNames()).get("adm").topicId());
        });
        step("create again", () -> get(admin.createTopics(List.of(new NewTopic("adm", 1, (short) 1))).all()));
        step("create bad name", () -> get(admin.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all()));
        step("create bad config", () -> get(admin.createTopics(List.of(new NewTopic("bad", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all()));
        step("create too many replicas", () -> get(admin.createTopics(List.of(new NewTopic("bad", 1, (short) 3))).all()));
        step("validateOnly", () -> {
            get(admin.createTopics(List.of(new NewTopic("dry", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all());
            return get(admin.listTopics().names()).contains("dry");
        });
        step("createPartitions", () -> {
            get(admin.createPartitions(Map.of("adm", NewPartitions.increaseTo(5))).all());
            var about = get(admin.describeTopics(List.of("adm")).allTopicNames()).get("adm");
            return about.partitions().size() + " " + about.isInternal() + " " + about.partitions().get(4).isr().size();
        });
        step("createPartitions fewer", () -> get(admin.createPartitions(Map.of("adm", NewPartitions.increaseTo(2))).all()));
        step("describe unknown", () -> get(admin.describeTopics(List.of("never-was")).allTopicNames()));
    }

    static void configs(Admin admin) throws Exception {
        step("describeConfigs", () -> setting(admin, "adm", "retention.ms"));
        step("describeConfigs default", () -> setting(admin, "adm", "cleanup.policy"));
        step("alter set", () -> alter(admin, "adm", "max.message.bytes", "123456", AlterConfigOp.OpType.SET));
        step("alter append", () -> alter(admin, "adm", "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        step("alter subtract", () -> alter(admin, "adm", "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT));
        step("alter delete", () -> alter(admin, "adm", "max.message.bytes", "", AlterConfigOp.OpType.DELETE));
        step("alter wrong value", () -> alter(admin, "adm", "max.message.bytes", "many", AlterConfigOp.OpType.SET));
        step("alter unknown name", () -> alter(admin, "adm", "no.such.setting", "1", AlterConfigOp.OpType.SET));
        step("broker configs", () -> {
            String id = get(admin.describeCluster().nodes()).iterator().next().idString();
            var broker = new ConfigResource(ConfigResource.Type.BROKER, id);
            var config = get(admin.describeConfigs(List.of(broker)).all()).get(broker);
            return config.get("node.id").value().equals(id) + " " + config.get("log.retention.hours").value();
        });
        step("listConfigResources", () -> get(admin.listConfigResources().all()).stream()
            .filter(r -> r.type() == ConfigResource.Type.BROKER || r.name().equals("adm")).map(r -> r.type().name()).sorted().toList());
    }

    static void offsets(Admin admin) throws Exception {
        var zero = new TopicPartition("adm", 0);
        for (var spec : List.of(Map.entry("earliest", OffsetSpec.earliest()), Map.entry("latest", OffsetSpec.latest()),
                Map.entry("max time", OffsetSpec.maxTimestamp()), Map.entry("by time", OffsetSpec.forTimestamp(T0 + 12)),
                Map.entry("after the last", OffsetSpec.forTimestamp(T0 + 999_999)))) {
            step("listOffsets " + spec.getKey(), () -> {
                var at = get(admin.listOffsets(Map.of(zero, spec.getValue())).all()).get(zero);
                return at.offset() + "@" + (at.timestamp() < 0 ? -1 : at.timestamp() - T0);
            });
        }
        step("describeProducers", () -> {
            var active = get(admin.describeProducers(List.of(zero)).all()).get(zero).activeProducers();
            return active.size() + " " + active.get(0).lastSequence() + " " + (active.get(0).producerId() >= 0);
        });
        step("deleteRecords", () -> {
            long low = get(admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(10))).lowWatermarks().get(zero)).lowWatermark();
            return low + " " + get(admin.listOffsets(Map.of(zero, OffsetSpec.earliest())).all()).get(zero).offset();
        });
        step("deleteRecords beyond", () -> get(admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(1000))).lowWatermarks().get(zero)));
        step("read before the start", () -> {
            try (var consumer = consumer("auto.offset.reset", "earliest")) {
                consumer.assign(List.of(zero));
                consumer.seek(zero, 3);
                for (int i = 0; i < 50; i++) {
                    for (var got : consumer.poll(Duration.ofMillis(200))) return got.offset();
                }
                return -1;
            }
        });
    }

    static void cluster(Admin admin) throws Exception {
        step("describeCluster", () -> {
            var cluster = admin.describeCluster();
            return get(cluster.nodes()).size() + " " + (get(cluster.clusterId()).length() > 10) + " " + (get(cluster.controller()) != null);
        });
        step("describeLogDirs", () -> {
            int id = get(admin.describeCluster().nodes()).iterator().next().id();
            long size = 0;
            for (var dir : get(admin.describeLogDirs(List.of(id)).allDescriptions()).get(id).values()) {
                for (var replica : dir.replicaInfos().entrySet()) {
                    if (replica.getKey().topic().equals("adm")) size += replica.getValue().size();
                }
            }
            return size > 1000;
        });
        step("electLeaders", () -> {
            var elected = get(admin.electLeaders(ElectionType.PREFERRED, Set.of(new TopicPartition("adm", 0))).partitions());
            return elected.entrySet().stream().map(e -> e.getKey() + " " + e.getValue().map(x -> x.getClass().getSimpleName()).orElse("elected")).collect(Collectors.joining());
        });
        step("listPartitionReassignments", () -> get(admin.listPartitionReassignments().reassignments()).size());
    }
}
