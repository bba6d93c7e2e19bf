// Asks its schema registry what each record's key says, about what its value says, and writes the answer.
package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redpanda-data/redpanda/src/transform-sdk/go/transform"
	"github.com/redpanda-data/redpanda/src/transform-sdk/go/transform/sr"
)

func main() {
	registry := sr.NewClient(sr.MaxCacheEntries(0))
	transform.OnRecordWritten(func(event transform.WriteEvent, writer transform.RecordWriter) error {
		record := event.Record()
		answer, err := ask(registry, string(record.Key), strings.Split(string(record.Value), " "))
		if err != nil {
			answer = "no"
		}
		return writer.Write(transform.Record{Key: record.Key, Value: []byte(answer)})
	})
}

func ask(registry sr.SchemaRegistryClient, question string, about []string) (string, error) {
	switch question {
	case "id":
		id, err := strconv.Atoi(about[0])
		if err != nil {
			return "", err
		}
		schema, err := registry.LookupSchemaById(id)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d %s %d", schema.Type, schema.Schema, len(schema.References)), nil
	case "subject":
		version, err := strconv.Atoi(about[1])
		if err != nil {
			return "", err
		}
		found, err := registry.LookupSchemaByVersion(about[0], version)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d %d %d %s", found.ID, found.Version, found.Type, found.Schema.Schema), nil
	default:
		created, err := registry.CreateSchema(about[0], sr.Schema{Schema: about[1], Type: sr.TypeJSON})
		if err != nil {
			return "", err
		}
		return strconv.Itoa(created.ID), nil
	}
}
