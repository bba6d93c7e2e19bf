package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"github.com/redpanda-data/redpanda/src/transform-sdk/go/transform"
)

func main() {
	second := transform.ToTopic(os.Getenv("REDPANDA_OUTPUT_TOPIC_1"))
	greeting := []byte(os.Getenv("GREETING"))
	transform.OnRecordWritten(func(event transform.WriteEvent, writer transform.RecordWriter) error {
		record := event.Record()
		starts := func(word string) bool { return bytes.HasPrefix(record.Key, []byte(word)) }
		switch {
		case starts("second"):
			return writer.Write(record, second)
		case starts("drop"):
			return nil
		case starts("log"):
			_, err := os.Stderr.Write(append(bytes.Clone(record.Value), '\n'))
			return err
		case starts("time"):
			record.Value = strconv.AppendInt(nil, record.Timestamp.UnixMilli(), 10)
		case starts("env"):
			record.Value = greeting
		}
		if err := writer.Write(record); err != nil {
			return err
		}
		switch {
		case starts("twice"):
			return writer.Write(record)
		case starts("fail"):
			return errors.New("on purpose")
		}
		return nil
	})
}
