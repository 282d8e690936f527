import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of the Java client, by the finalized transaction.version; prints a JSON line a step. */
public class Transactions {
    static final ObjectMapper JSON = new ObjectMapper();
    static String address;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic("in", 2, (short) 1), new NewTopic("out", 2, (short) 1)))
                .all().get(30, TimeUnit.SECONDS);
            step("version", () -> admin.describeFeatures().featureMetadata().get(30, TimeUnit.SECONDS)
                .finalizedFeatures().get("transaction.version").toString());
            step("commit and abort", () -> commitAndAbort());
            step("bumped", () -> bumped(admin));
            step("copy", () -> copy());
            step("fenced", () -> fenced());
            step("open", () -> open(admin));
            step("aborted by hand", () -> abortedByHand(admin));
        }
    }

    static void step(String name, Callable<Object> body) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        try {
            line.put("result", body.call());
        } catch (ExecutionException error) {
            line.put("error", error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage());
        } catch (Exception error) {
            line.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    static KafkaProducer<String, String> producer(String id) {
        KafkaProducer<String, String> made = new KafkaProducer<>(
            Map.of("bootstrap.servers", address, "transactional.id", id, "transaction.timeout.ms", 60000),
            new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static KafkaConsumer<String, String> consumer(String group, String isolation) {
        return new KafkaConsumer<>(
            Map.of("bootstrap.servers", address, "group.id", group, "isolation.level", isolation,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false", "max.poll.records", "7"),
            new StringDeserializer(), new StringDeserializer());
    }

    /** How many records of a topic a reader sees. */
    static long seen(String topic, String isolation) {
        List<TopicPartition> all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (KafkaConsumer<String, String> reader = consumer("reader", isolation)) {
            reader.assign(all);
            reader.seekToBeginning(all);
            Map<TopicPartition, Long> ends = reader.endOffsets(all);
            long count = 0;
            while (all.stream().anyMatch(each -> reader.position(each) < ends.get(each))) {
                count += reader.poll(Duration.ofMillis(200)).count();
            }
            return count;
        }
    }

    static Object commitAndAbort() throws Exception {
        try (KafkaProducer<String, String> producer = producer("a")) {
            for (int transaction = 0; transaction < 20; transaction++) {
                producer.beginTransaction();
                for (int record = 0; record < 5; record++) {
                    producer.send(new ProducerRecord<>("in", record % 2, "k", transaction + "-" + record));
                }
                if (transaction % 3 == 2) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction(); // without a record
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
        }
        return List.of(seen("in", "read_committed"), seen("in", "read_uncommitted"));
    }

    /** Each end has raised the epoch, as transaction.version 2 does. */
    static Object bumped(Admin admin) throws Exception {
        TransactionDescription found = admin.describeTransactions(Set.of("a")).description("a").get(30, TimeUnit.SECONDS);
        return found.state() + " " + (found.producerEpoch() >= 20);
    }

    static Object copy() throws Exception {
        Map<String, Integer> results = new TreeMap<>();
        try (KafkaProducer<String, String> producer = producer("copy");
             KafkaConsumer<String, String> reader = consumer("copiers", "read_committed")) {
            reader.subscribe(List.of("in"));
            int copied = 0, round = 0;
            while (copied < 70) {
                List<ConsumerRecord<String, String>> got = new ArrayList<>();
                reader.poll(Duration.ofMillis(500)).forEach(got::add);
                if (got.isEmpty()) continue;
                Map<TopicPartition, OffsetAndMetadata> positions = new TreeMap<>(
                    java.util.Comparator.comparing(TopicPartition::toString));
                producer.beginTransaction();
                for (ConsumerRecord<String, String> each : got) {
                    producer.send(new ProducerRecord<>("out", each.partition(), each.key(), each.value()));
                    positions.put(new TopicPartition("in", each.partition()), new OffsetAndMetadata(each.offset() + 1));
                }
                producer.sendOffsetsToTransaction(positions, reader.groupMetadata());
                if (round++ % 2 == 0) {
                    producer.abortTransaction(); // and read it again
                    for (TopicPartition each : reader.assignment()) {
                        OffsetAndMetadata committed = reader.committed(Set.of(each)).get(each);
                        reader.seek(each, committed == null ? 0 : committed.offset());
                    }
                    continue;
                }
                producer.commitTransaction();
                copied += got.size();
            }
            results.put("copied", copied);
        }
        return results + " " + seen("out", "read_committed");
    }

    static Object fenced() throws Exception {
        List<String> said = new ArrayList<>();
        try (KafkaProducer<String, String> first = producer("twice")) {
            first.beginTransaction();
            first.send(new ProducerRecord<>("out", 0, "k", "lost")).get(30, TimeUnit.SECONDS);
            try (KafkaProducer<String, String> second = producer("twice")) {
                try {
                    first.commitTransaction();
                } catch (Exception error) {
                    said.add(error.getClass().getSimpleName());
                }
                second.beginTransaction();
                second.send(new ProducerRecord<>("out", 0, "k", "kept"));
                second.commitTransaction();
            }
        }
        said.add("" + seen("out", "read_committed"));
        return said;
    }

    static Object open(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = producer("open")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("out", 1, "k", "v")).get(30, TimeUnit.SECONDS);
            TransactionDescription found =
                admin.describeTransactions(Set.of("open")).description("open").get(30, TimeUnit.SECONDS);
            long listed = admin.listTransactions(new ListTransactionsOptions()
                .filterStates(Set.of(TransactionState.ONGOING)).filterOnTransactionalIdPattern("op.*"))
                .all().get(30, TimeUnit.SECONDS).size();
            producer.abortTransaction();
            return found.state() + " " + found.topicPartitions() + " " + listed;
        }
    }

    /** What kafka-transactions abort does for a transaction that hangs. */
    static Object abortedByHand(Admin admin) throws Exception {
        TopicPartition place = new TopicPartition("out", 0);
        KafkaProducer<String, String> producer = producer("hanging");
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("out", 0, "k", "v")).get(30, TimeUnit.SECONDS);
        ProducerState open = admin.describeProducers(Set.of(place)).partitionResult(place).get(30, TimeUnit.SECONDS)
            .activeProducers().stream().filter(each -> each.currentTransactionStartOffset().isPresent())
            .findFirst().orElseThrow();
        admin.abortTransaction(new AbortTransactionSpec(
            place, open.producerId(), (short) open.producerEpoch(), open.coordinatorEpoch().orElse(0)))
            .all().get(30, TimeUnit.SECONDS);
        boolean left = admin.describeProducers(Set.of(place)).partitionResult(place).get(30, TimeUnit.SECONDS)
            .activeProducers().stream().anyMatch(each -> each.currentTransactionStartOffset().isPresent());
        producer.close(Duration.ZERO);
        return left;
    }
}
