import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * Kafka's own message classes as an oracle. A line in: `api_key version request|response hex`, or
 * `class.name version key|value|data hex` with the int16 that stands before such bytes. A line out: `hex json` of what
 * Kafka understood, written again; or `error why`. The line `types` gives the types of the group coordinator's records.
 */
public class CodecOracle {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        try {
            if (words[0].equals("types")) {
                return Arrays.stream(CoordinatorRecordType.values())
                    .map(type -> type.id() + "=" + type.newRecordKey().getClass().getSimpleName())
                    .collect(Collectors.joining(" "));
            }
            if (!Character.isDigit(words[0].charAt(0))) {
                return prefixed(words);
            }
            var type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
            short version = Short.parseShort(words[1]);
            ApiMessage message = words[2].equals("request") ? type.newRequest() : type.newResponse();
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            message.read(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                return "error " + bytes.remaining() + " bytes are left over";
            }
            var cache = new ObjectSerializationCache();
            ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(again), cache, version);
            return HexFormat.of().formatHex(again.array()) + " " + json(message, version);
        } catch (Exception error) {
            return "error " + error;
        }
    }

    private static String prefixed(String[] words) throws Exception {
        var message = (ApiMessage) Class.forName(words[0]).getDeclaredConstructor().newInstance();
        short version = Short.parseShort(words[1]);
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
        short before = bytes.getShort();
        if (words[2].equals("key") ? before != message.apiKey() : before != version) {
            return "error " + before + " stands before it";
        }
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) {
            return "error " + bytes.remaining() + " bytes are left over";
        }
        byte[] again = words[2].equals("key")
            ? MessageUtil.toCoordinatorTypePrefixedBytes(message)
            : MessageUtil.toVersionPrefixedBytes(version, message);
        return HexFormat.of().formatHex(again) + " " + json(message, version);
    }

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        Class<?> kind = message.getClass();
        return (JsonNode) Class.forName(kind.getName() + "JsonConverter")
            .getMethod("write", kind, short.class, boolean.class)
            .invoke(null, message, version, false);
    }
}
