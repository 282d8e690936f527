import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.UUID;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** Kafka's own serdes as an oracle: each argument is `kind:hex of the thing as text`; prints its bytes and what they are read as. */
public class Serializers {
    public static void main(String[] arguments) {
        for (String argument : arguments) {
            String kind = argument.substring(0, argument.indexOf(':'));
            String text = new String(HexFormat.of().parseHex(argument.substring(kind.length() + 1)), StandardCharsets.UTF_8);
            switch (kind) {
                case "String" -> print(Serdes.String(), text);
                case "Short" -> print(Serdes.Short(), Short.valueOf(text));
                case "Integer" -> print(Serdes.Integer(), Integer.valueOf(text));
                case "Long" -> print(Serdes.Long(), Long.valueOf(text));
                case "Float" -> print(Serdes.Float(), Float.valueOf(text));
                case "Double" -> print(Serdes.Double(), Double.valueOf(text));
                case "UUID" -> print(Serdes.UUID(), UUID.fromString(text));
                default -> throw new IllegalArgumentException(kind);
            }
        }
    }

    private static <T> void print(Serde<T> serde, T thing) {
        byte[] data = serde.serializer().serialize("topic", thing);
        T read = serde.deserializer().deserialize("topic", data);
        System.out.println(HexFormat.of().formatHex(data) + " " + thing.equals(read));
    }
}
