import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Kafka's own message classes as an oracle. A line in: `api_key version request|response hex`. A line out:
 * `hex json` of what Kafka understood, written again; or `error why`.
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

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        Class<?> kind = message.getClass();
        return (JsonNode) Class.forName(kind.getName() + "JsonConverter")
            .getMethod("write", kind, short.class, boolean.class)
            .invoke(null, message, version, false);
    }
}
