// Passes every record on as it is.
package main

import "github.com/redpanda-data/redpanda/src/transform-sdk/go/transform"

func main() {
	transform.OnRecordWritten(func(event transform.WriteEvent, writer transform.RecordWriter) error {
		return writer.Write(event.Record())
	})
}
