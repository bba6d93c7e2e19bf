// Passes records on with their value in upper case, and leaves out those without a value.
package main

import (
	"bytes"

	"github.com/redpanda-data/redpanda/src/transform-sdk/go/transform"
)

func main() {
	transform.OnRecordWritten(shout)
}

func shout(event transform.WriteEvent, writer transform.RecordWriter) error {
	record := event.Record()
	if record.Value == nil {
		return nil
	}
	record.Value = bytes.ToUpper(record.Value)
	return writer.Write(record)
}
