import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/** Prints the name of every setting that this Kafka has: who has it, and the name. */
public final class SettingNames {
    public static void main(String[] arguments) {
        Map<String, Set<String>> names = Map.of(
            "admin", AdminClientConfig.configNames(),
            "broker", AbstractKafkaConfig.CONFIG_DEF.names(),
            "consumer", ConsumerConfig.configNames(),
            "producer", ProducerConfig.configNames());
        for (String who : new TreeSet<>(names.keySet())) {
            for (String name : new TreeSet<>(names.get(who))) {
                System.out.println(who + " " + name);
            }
        }
    }
}
