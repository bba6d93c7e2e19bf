// Writes every record to the first output topic and, by name, to the second.
package main

import (
	"os"

	"github.com/redpanda-data/redpanda/src/transform-sdk/go/transform"
)

func main() {
	second := transform.ToTopic(os.Getenv("REDPANDA_OUTPUT_TOPIC_1"))
	transform.OnRecordWritten(func(event transform.WriteEvent, writer transform.RecordWriter) error {
		if err := writer.Write(event.Record()); err != nil {
			return err
		}
		return writer.Write(event.Record(), second)
	})
}
