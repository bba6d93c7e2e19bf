// Passes records on, but fails after the write for the keys "panic", "error" and "nowhere".
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/redpanda-data/redpanda/src/transform-sdk/go/transform"
)

func main() {
	transform.OnRecordWritten(func(event transform.WriteEvent, writer transform.RecordWriter) error {
		record := event.Record()
		if err := writer.Write(record); err != nil {
			return err
		}
		switch string(record.Key) {
		case "panic":
			fmt.Fprintln(os.Stderr, "about to panic")
			panic("on purpose")
		case "error":
			return errors.New("refused on purpose")
		case "nowhere":
			return writer.Write(record, transform.ToTopic("nowhere"))
		}
		return nil
	})
}
