import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors and consumer protocol as an oracle. Words of a line are separated by blanks, lists by commas,
 * "-" is nothing, a partition is `topic:number`. Each line gets one answer `= …`, or `= error why`; other lines are the log.
 *
 * topic name count, rack partition racks: what the next `assign` divides
 * member id instance subscription-hex: a member of it; added to the map in this order
 * assign name: `member partitions` for each member, separated by blanks; forgets all of the above
 * subscription version hex: topics user-data owned generation rack, and the bytes written again in that version
 * assignment version hex: partitions user-data, and the bytes written again in that version
 */
public class AssignorOracle {
    private final Map<String, Integer> topics = new TreeMap<>();
    private final Map<String, List<String>> racks = new HashMap<>();
    private Map<String, Subscription> members = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var oracle = new AssignorOracle();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println("= " + oracle.answer(line.split(" ")));
            out.flush(); // the log goes to the same place
        }
    }

    private String answer(String[] words) {
        try {
            switch (words[0]) {
                case "topic": topics.put(words[1], Integer.parseInt(words[2])); return "ok";
                case "rack": racks.put(words[1], list(words[2])); return "ok";
                case "member": return member(words);
                case "assign": return assign(words[1]);
                case "subscription": return subscription(Short.parseShort(words[1]), bytes(words[2]));
                case "assignment": return assignment(Short.parseShort(words[1]), bytes(words[2]));
                default: return "error what is " + words[0] + "?";
            }
        } catch (Exception error) {
            return "error " + error;
        }
    }

    private String member(String[] words) {
        Subscription subscription = ConsumerProtocol.deserializeSubscription(bytes(words[3]));
        subscription.setGroupInstanceId(words[2].equals("-") ? Optional.empty() : Optional.of(words[2]));
        members.put(words[1], subscription);
        return "ok";
    }

    private String assign(String name) {
        try {
            ConsumerPartitionAssignor assignor = switch (name) {
                case "range" -> new RangeAssignor();
                case "roundrobin" -> new RoundRobinAssignor();
                case "sticky" -> new StickyAssignor();
                default -> new CooperativeStickyAssignor();
            };
            Map<String, Assignment> assigned = assignor.assign(cluster(), new GroupSubscription(members)).groupAssignment();
            return new TreeMap<>(assigned).entrySet().stream()
                .map(entry -> entry.getKey() + " " + shown(entry.getValue().partitions()))
                .collect(Collectors.joining(" "));
        } finally {
            topics.clear();
            racks.clear();
            members = new HashMap<>(); // a new one: its table is as large as its members need
        }
    }

    private Cluster cluster() {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.forEach((topic, count) -> {
            for (int number = 0; number < count; number++) {
                Node[] replicas = racks.getOrDefault(topic + ":" + number, List.of()).stream()
                    .map(rack -> nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "127.0.0.1", 1, r)))
                    .toArray(Node[]::new);
                partitions.add(new PartitionInfo(topic, number, null, replicas, replicas));
            }
        });
        return new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
    }

    private static String subscription(short version, ByteBuffer data) {
        Subscription read = ConsumerProtocol.deserializeSubscription(data);
        return String.join(" ",
            read.topics().isEmpty() ? "-" : String.join(",", read.topics()),
            hex(read.userData()),
            shown(read.ownedPartitions()),
            read.generationId().orElse(-1).toString(),
            read.rackId().orElse("-"),
            hex(ConsumerProtocol.serializeSubscription(read, version)));
    }

    private static String assignment(short version, ByteBuffer data) {
        Assignment read = ConsumerProtocol.deserializeAssignment(data);
        return shown(read.partitions()) + " " + hex(read.userData()) + " "
            + hex(ConsumerProtocol.serializeAssignment(read, version));
    }

    private static String shown(Collection<TopicPartition> partitions) {
        if (partitions.isEmpty()) {
            return "-";
        }
        return partitions.stream().map(p -> p.topic() + ":" + p.partition()).collect(Collectors.joining(","));
    }

    private static List<String> list(String word) {
        return word.equals("-") ? List.of() : Arrays.asList(word.split(","));
    }

    private static ByteBuffer bytes(String word) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(word));
    }

    private static String hex(ByteBuffer data) {
        if (data == null) {
            return "-";
        }
        byte[] copy = new byte[data.remaining()];
        data.duplicate().get(copy);
        return "x" + HexFormat.of().formatHex(copy);
    }
}
