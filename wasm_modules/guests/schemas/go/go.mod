module schemas

go 1.21

require github.com/redpanda-data/redpanda/src/transform-sdk/go/transform v1.1.0
