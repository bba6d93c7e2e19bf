// Adds the great-circle distance to JSON records, with the allocations of encoding/json; a record with the key "memory"
// gives what the Go runtime says of its heap instead.
package main

import (
	"encoding/json"
	"math"
	"runtime"

	"github.com/redpanda-data/redpanda/src/transform-sdk/go/transform"
)

const earthRadiusKm = 6371.0

type trip struct {
	ID         string    `json:"id"`
	From       []float64 `json:"from"`
	To         []float64 `json:"to"`
	Note       string    `json:"note"`
	DistanceKm float64   `json:"distance_km"`
}

type memory struct {
	Collections uint32 `json:"collections"`
	HeapBytes   uint64 `json:"heap_bytes"`
	TotalBytes  uint64 `json:"total_bytes"`
}

func main() {
	transform.OnRecordWritten(func(event transform.WriteEvent, writer transform.RecordWriter) error {
		record := event.Record()
		var err error
		if string(record.Key) == "memory" {
			record.Value, err = json.Marshal(ofTheRuntime())
		} else {
			record.Value, err = withDistance(record.Value)
		}
		if err != nil {
			return err
		}
		return writer.Write(record)
	})
}

func ofTheRuntime() memory {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return memory{Collections: stats.NumGC, HeapBytes: stats.HeapSys, TotalBytes: stats.TotalAlloc}
}

func withDistance(value []byte) ([]byte, error) {
	var found trip
	if err := json.Unmarshal(value, &found); err != nil {
		return nil, err
	}
	found.DistanceKm = haversine(found.From, found.To)
	return json.Marshal(found)
}

// haversine takes latitude and longitude in degrees.
func haversine(from, to []float64) float64 {
	const radians = math.Pi / 180
	north := math.Sin((to[0] - from[0]) * radians / 2)
	east := math.Sin((to[1] - from[1]) * radians / 2)
	root := north*north + math.Cos(from[0]*radians)*math.Cos(to[0]*radians)*east*east
	return 2 * earthRadiusKm * math.Asin(math.Sqrt(root))
}
