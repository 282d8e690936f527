// What applications do with kafkajs; `node client.js ADDRESS data|group` prints a JSON line a step.
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const [address, mode] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [address], clientId: "interop", logLevel: logLevel.NOTHING, retry: { retries: 4 } });
const T0 = 1750000000000;

async function step(name, body) {
  try {
    console.log(JSON.stringify({ step: name, result: await body() }));
  } catch (error) {
    console.log(JSON.stringify({ step: name, error: error.type || error.name, message: String(error.message) }));
  }
}

const messages = (count) =>
  Array.from({ length: count }, (_, i) => ({
    key: i % 7 ? `key-${i}` : null,
    value: i % 11 ? `value-${i}` : null,
    timestamp: String(T0 + i),
    headers: { i: String(i) },
  }));

async function data() {
  const admin = kafka.admin();
  await admin.connect();
  const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
  await step("createTopics", () =>
    admin.createTopics({ topics: Object.keys(codecs).map((c) => ({ topic: `js-${c}`, numPartitions: 1 })) }));
  await step("createTopics again", () => admin.createTopics({ topics: [{ topic: "js-none" }] }));
  for (const [name, compression] of Object.entries(codecs)) {
    await step(name, async () => {
      const producer = kafka.producer({ idempotent: name === "none", maxInFlightRequests: 1 });
      await producer.connect();
      let last;
      for (let i = 0; i < 3; i++) {
        [last] = await producer.send({ topic: `js-${name}`, compression, acks: -1, messages: messages(100) });
      }
      await producer.disconnect();
      return last.baseOffset;
    });
  }
  await step("listTopics", async () => (await admin.listTopics()).filter((t) => t.startsWith("js-")).sort());
  await step("metadata", async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: ["js-gzip"] });
    return topics[0].partitions.length;
  });
  await step("createPartitions", async () => {
    await admin.createPartitions({ topicPartitions: [{ topic: "js-gzip", count: 3 }] });
    return (await admin.fetchTopicMetadata({ topics: ["js-gzip"] })).topics[0].partitions.length;
  });
  await step("offsets", async () => {
    const [{ low, high }] = await admin.fetchTopicOffsets("js-none");
    return `${low}-${high}`;
  });
  await step("offsets by time", async () => (await admin.fetchTopicOffsetsByTimestamp("js-none", T0 + 42))[0].offset);
  await step("configs", async () => {
    const topic = { type: ConfigResourceTypes.TOPIC, name: "js-none" };
    await admin.alterConfigs({ resources: [{ ...topic, configEntries: [{ name: "retention.ms", value: "864000000" }] }] });
    const { resources } = await admin.describeConfigs({ resources: [{ ...topic, configNames: ["retention.ms"] }] });
    return resources[0].configEntries[0].configValue;
  });
  await step("deleteRecords", async () => {
    await admin.deleteTopicRecords({ topic: "js-none", partitions: [{ partition: 0, offset: "50" }] });
    return (await admin.fetchTopicOffsets("js-none"))[0].low;
  });
  await step("describeCluster", async () => (await admin.describeCluster()).brokers.length);
  await step("deleteTopics", async () => {
    await admin.deleteTopics({ topics: ["js-snappy"] });
    return (await admin.listTopics()).includes("js-snappy");
  });
  await admin.disconnect();
}

async function group() {
  const producer = kafka.producer();
  const admin = kafka.admin();
  await Promise.all([producer.connect(), admin.connect()]);
  await admin.createTopics({ topics: [{ topic: "group-js", numPartitions: 1 }] });
  await producer.send({ topic: "group-js", messages: messages(100) });
  const consumer = kafka.consumer({ groupId: "group-js" });
  await consumer.connect();
  await consumer.subscribe({ topic: "group-js", fromBeginning: true });
  const offsets = [];
  await new Promise((done, late) => {
    setTimeout(() => late(new Error(`only ${offsets.length} of 100 came`)), 120000).unref();
    consumer.run({
      eachMessage: async ({ message }) => {
        if (offsets.push(message.offset) === 100) done();
      },
    });
  });
  await consumer.commitOffsets([{ topic: "group-js", partition: 0, offset: "100" }]);
  const committed = (await admin.fetchOffsets({ groupId: "group-js", topics: ["group-js"] }))[0].partitions[0].offset;
  await Promise.all([consumer.disconnect(), producer.disconnect(), admin.disconnect()]);
  return { read: offsets.length, first: offsets[0], last: offsets[99], committed };
}

(mode === "group" ? step("group", group) : data()).then(() => process.exit(0));
