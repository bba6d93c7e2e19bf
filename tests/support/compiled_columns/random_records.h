// Random records, each of whose fields is a block of its exact size.

#pragma once

#include "tested_file.h"

static _Thread_local uint64_t random_state;

static uint64_t random_bits(void) {  // SplitMix64
  uint64_t bits = random_state += 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

static int64_t below(int64_t limit) { return (int64_t)(random_bits() % (uint64_t)limit); }
static bool chance(int percent) { return below(100) < percent; }

static void *block_of(size_t size) {
  void *block = malloc(size);
  CHECK(block);
  return block;
}

struct text {
  char *data;  // NULL: null
  size_t size;
};

struct pair {
  struct text name, value;  // a name is followed by a 0 that is not counted
};

struct headers {
  int count;
  struct pair *pairs;
};

struct record {
  int topic, error;
  int32_t partition;
  int64_t offset, time;
  struct text key, value;
  struct headers headers;
  enum { QUEUED, READ, DESTROYED } state;  // of its message
};

static struct text text_of(const char *data, size_t size, size_t more) {
  if (!data) return (struct text){NULL, 0};
  struct text text = {block_of(size + more), size};
  memcpy(text.data, data, size);
  memset(text.data + size, 0, more);
  return text;
}

static struct text random_text(bool has_nulls) {
  static const int64_t LIMITS[] = {1, 4, 12, 100};
  char bytes[5000];
  if (has_nulls && chance(15)) return (struct text){NULL, 0};
  size_t size = below(100) ? (size_t)below(LIMITS[below(4)]) : (size_t)below(sizeof(bytes));
  for (size_t i = 0; i < size; i++) bytes[i] = (char)random_bits();
  return text_of(bytes, size, 0);
}

static struct text random_name(void) {
  char bytes[40];
  size_t size = chance(20) ? 0 : (size_t)below(chance(80) ? 6 : 40);
  for (size_t i = 0; i < size; i++) bytes[i] = (char)(1 + below(255));
  return text_of(bytes, size, 1);
}

static bool is_same(struct text text, const void *data, size_t size) {
  if (!text.data || !data) return !text.data && !data && !size;
  return text.size == size && memcmp(text.data, data, size) == 0;
}

static struct headers copy_of(const struct headers *headers) {
  struct headers copy = {headers->count, block_of(headers->count * sizeof(struct pair))};
  for (int i = 0; i < headers->count; i++) {
    copy.pairs[i].name = text_of(headers->pairs[i].name.data, headers->pairs[i].name.size, 1);
    copy.pairs[i].value = text_of(headers->pairs[i].value.data, headers->pairs[i].value.size, 0);
  }
  return copy;
}

static void free_headers(struct headers *headers) {
  for (int i = 0; i < headers->count; i++) free(headers->pairs[i].name.data), free(headers->pairs[i].value.data);
  free(headers->pairs);
}

static void make_record(struct record *record, int topics, int partitions, int with_headers) {
  *record = (struct record){.topic = (int)below(topics), .partition = (int32_t)below(partitions)};
  record->offset = chance(10) ? -below(2000) : (int64_t)(random_bits() >> below(60) >> 1);
  record->time = chance(10) ? -below(2000) : (int64_t)(random_bits() >> below(60) >> 1);
  record->key = random_text(true), record->value = random_text(true);
  record->headers.count = chance(with_headers) ? (int)below(6) : 0;
  record->headers.pairs = block_of(record->headers.count * sizeof(struct pair));
  for (int i = 0; i < record->headers.count; i++)
    record->headers.pairs[i] = (struct pair){random_name(), random_text(true)};
}

static void free_records(struct record *records, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    free(records[i].key.data), free(records[i].value.data), free_headers(&records[i].headers);
  free(records);
}
