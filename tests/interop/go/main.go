// Logs in with franz-go, writes a record and reads it back in a group, and prints its value or the error:
// `login ADDRESS MECHANISM USER PASSWORD TOPIC GROUP`.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	default:
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
}

func run(address, name, user, password, topic, group string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.SASL(mechanism(name, user, password)),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordDeliveryTimeout(20*time.Second),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	record := &kgo.Record{Topic: topic, Value: []byte("from " + name)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if records := fetches.Records(); len(records) > 0 {
			fmt.Println(string(records[0].Value))
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func main() {
	a := os.Args[1:]
	if err := run(a[0], a[1], a[2], a[3], a[4], a[5]); err != nil {
		fmt.Println("error:", err)
	}
}
