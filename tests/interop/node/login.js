// Logs in with kafkajs, writes a record and reads it back: `node login.js ADDRESS MECHANISM USER PASSWORD TOPIC GROUP`.
const { Kafka, logLevel } = require("kafkajs");

const [address, mechanism, username, password, topic, groupId] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: [address],
  logLevel: logLevel.NOTHING,
  retry: { retries: 2 },
  sasl: { mechanism, username, password },
});

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: `from ${mechanism}` }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const value = await new Promise((resolve) =>
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }));
  await consumer.disconnect();
  console.log(JSON.stringify({ value }));
}

main().catch((error) => console.log(JSON.stringify({ error: error.name, message: error.message })));
