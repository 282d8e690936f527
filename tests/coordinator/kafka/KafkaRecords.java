// Prints records of __consumer_offsets as Apache Kafka 4.3.1 writes them, and the partition of some groups:
//   java -cp "<kafka>/libs/*" KafkaRecords.java > records-4.3.1.txt
// With a file of ours ("key value" in hex, one per line) it prints how Kafka reads them.
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.group.*;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.common.Uuid;
import java.util.*;
public class KafkaRecords {
  static String hex(byte[] b){ return b==null?"null":HexFormat.of().formatHex(b); }
  public static void main(String[] a) throws Exception {
    GroupCoordinatorRecordSerde s = new GroupCoordinatorRecordSerde();
    for (short v=0; v<=4; v++) {
      OffsetCommitValue o = new OffsetCommitValue().setOffset(1234567890123L).setLeaderEpoch(v>=3?7:-1).setMetadata("mäta").setCommitTimestamp(1700000000000L).setExpireTimestamp(v==1?1800000000000L:-1L);
      if (v==4) o.setTopicId(Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAQ"));
      CoordinatorRecord r = CoordinatorRecord.record(new OffsetCommitKey().setGroup("grüppe").setTopic("topic").setPartition(3), new ApiMessageAndVersion(o, v));
      System.out.println("o "+v+" "+hex(s.serializeKey(r))+" "+hex(s.serializeValue(r)));
      GroupMetadataValue.MemberMetadata m = new GroupMetadataValue.MemberMetadata().setMemberId("m-1").setGroupInstanceId(v>=3?"inst":null).setClientId("c").setClientHost("/h").setRebalanceTimeout(v>=1?60000:-1).setSessionTimeout(10000).setSubscription(new byte[]{1,2}).setAssignment(new byte[]{3});
      GroupMetadataValue g = new GroupMetadataValue().setProtocolType("consumer").setGeneration(5).setProtocol("range").setLeader("m-1").setCurrentStateTimestamp(v>=2?99L:-1L).setMembers(List.of(m));
      r = CoordinatorRecord.record(new GroupMetadataKey().setGroup("grüppe"), new ApiMessageAndVersion(g, v));
      System.out.println("g "+v+" "+hex(s.serializeKey(r))+" "+hex(s.serializeValue(r)));
    }
    GroupMetadataValue g = new GroupMetadataValue().setProtocolType("").setGeneration(2).setProtocol(null).setLeader(null).setCurrentStateTimestamp(99L).setMembers(List.of());
    CoordinatorRecord r = CoordinatorRecord.record(new GroupMetadataKey().setGroup("e"), new ApiMessageAndVersion(g, (short)3));
    System.out.println("g e "+hex(s.serializeKey(r))+" "+hex(s.serializeValue(r)));
    // and back: what we wrote
    if (a.length > 0) for (String line : java.nio.file.Files.readAllLines(java.nio.file.Path.of(a[0]))) {
      String[] p = line.split(" ");
      CoordinatorRecord back = s.deserialize(java.nio.ByteBuffer.wrap(HexFormat.of().parseHex(p[0])), p[1].equals("null")?null:java.nio.ByteBuffer.wrap(HexFormat.of().parseHex(p[1])));
      System.out.println("back " + back.key() + " " + (back.value()==null?null:back.value()));
    }
    for (String n : List.of("", "a", "my-group", "grüppe", "😀", "polygenelubricants", "x".repeat(100)))
      System.out.println("p " + org.apache.kafka.common.utils.Utils.abs(n.hashCode()) % 50 + " " + n);
  }
}
