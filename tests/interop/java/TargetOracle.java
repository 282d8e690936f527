import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Asks the assignors of Kafka's group coordinator. One answer, "= …", for each line that comes in:
 * topic ID COUNT [ASSIGNABLE]; member ID INSTANCE|- TOPICS|- OLD|-; assign NAME alike|mixed.
 * Topic ids are numbers; OLD and answers look like 1:0,1:2.
 */
public class TargetOracle {
    private static final Map<String, PartitionAssignor> ASSIGNORS =
        Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor(), "simple", new SimpleAssignor());

    private final Map<Uuid, Integer> topics = new HashMap<>();
    private final Map<Uuid, Set<Integer>> assignable = new HashMap<>();
    private final Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
    private final Map<Uuid, Map<Integer, String>> owners = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        TargetOracle oracle = new TargetOracle();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                System.out.println("= " + oracle.answer(line.split(" ")));
            } catch (RuntimeException problem) {
                oracle.forget();
                System.out.println("= error " + problem);
            }
        }
    }

    private String answer(String[] words) {
        switch (words[0]) {
            case "topic":
                Uuid topic = new Uuid(0, Long.parseLong(words[1]));
                topics.put(topic, Integer.parseInt(words[2]));
                if (words.length > 3) {
                    Set<Integer> may = new HashSet<>();
                    list(words[3]).forEach(index -> may.add(Integer.parseInt(index)));
                    assignable.put(topic, may);
                }
                return "ok";
            case "member":
                Set<Uuid> subscribed = new HashSet<>();
                list(words[3]).forEach(id -> subscribed.add(new Uuid(0, Long.parseLong(id))));
                members.put(words[1], new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(),
                    words[2].equals("-") ? Optional.empty() : Optional.of(words[2]),
                    subscribed,
                    new Assignment(Collections.unmodifiableMap(old(words[1], words[4])))));
                return "ok";
            case "assign":
                return assign(words[1], words[2].equals("alike") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private Map<Uuid, Set<Integer>> old(String memberId, String text) {
        Map<Uuid, Set<Integer>> partitions = new HashMap<>();
        for (String one : list(text)) {
            String[] parts = one.split(":");
            Uuid topic = new Uuid(0, Long.parseLong(parts[0]));
            int index = Integer.parseInt(parts[1]);
            partitions.computeIfAbsent(topic, key -> new HashSet<>()).add(index);
            owners.computeIfAbsent(topic, key -> new HashMap<>()).put(index, memberId);
        }
        return partitions;
    }

    private String assign(String name, SubscriptionType type) {
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return topics.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
        Optional<Map<Uuid, Set<Integer>>> only =
            name.equals("simple") ? Optional.of(assignable) : Optional.empty();
        GroupAssignment result = ASSIGNORS.get(name).assign(new GroupSpecImpl(members, type, owners, only), describer);
        List<String> answer = new ArrayList<>();
        for (String memberId : new TreeSet<>(members.keySet())) {
            List<String> places = new ArrayList<>();
            if (result.members().containsKey(memberId)) {
                new TreeMap<>(result.members().get(memberId).partitions()).forEach((topic, indexes) ->
                    new TreeSet<>(indexes).forEach(index -> places.add(topic.getLeastSignificantBits() + ":" + index)));
            }
            answer.add(memberId + " " + (places.isEmpty() ? "-" : String.join(",", places)));
        }
        forget();
        return String.join(" ", answer);
    }

    private void forget() {
        topics.clear();
        assignable.clear();
        members.clear();
        owners.clear();
    }

    private static List<String> list(String word) {
        return word.equals("-") ? List.of() : Arrays.asList(word.split(","));
    }
}
