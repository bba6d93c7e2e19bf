// In the shape of modules from Redpanda's JavaScript and C++ SDKs: ABI 1, the schema registry's imports, more exports.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

IMPORT("redpanda_transform", "check_abi_version_1") void check_abi_version_1(void);
IMPORT("redpanda_transform", "read_batch_header")
int32_t read_batch_header(int64_t*, int32_t*, int32_t*, int16_t*, int32_t*, int64_t*, int64_t*, int64_t*, int16_t*,
                          int32_t*);
IMPORT("redpanda_transform", "read_next_record")
int32_t read_next_record(uint8_t*, int64_t*, int64_t*, char*, uint32_t);
IMPORT("redpanda_transform", "write_record") int32_t write_record(const char*, uint32_t);
IMPORT("redpanda_transform", "write_record_with_options")
int32_t write_record_with_options(const char*, uint32_t, const char*, uint32_t);

IMPORT("redpanda_schema_registry", "check_abi_version_0") void check_abi_version_0(void);
IMPORT("redpanda_schema_registry", "get_schema_definition_len") int32_t get_schema_definition_len(int32_t, int32_t*);
IMPORT("redpanda_schema_registry", "get_schema_definition") int32_t get_schema_definition(int32_t, char*, int32_t);
IMPORT("redpanda_schema_registry", "get_subject_schema_len")
int32_t get_subject_schema_len(const char*, int32_t, int32_t, int32_t*);
IMPORT("redpanda_schema_registry", "get_subject_schema")
int32_t get_subject_schema(const char*, int32_t, int32_t, char*, int32_t);
IMPORT("redpanda_schema_registry", "create_subject_schema")
int32_t create_subject_schema(const char*, int32_t, const char*, int32_t, int32_t*);

EXPORT("file_length") int32_t file_length(void) { return 0; }
EXPORT("get_file") void get_file(char* into) { (void)into; }

static char *input, *output;
static char topic_option[128];
static int32_t topic_option_size;

static void must(int holds) {
  if (!holds) abort();
}

static const char* take(const char* at, int64_t* number) {
  uint64_t code = 0;
  for (int shift = 0;; shift += 7) {
    code |= (uint64_t)(*at & 0x7F) << shift;
    if (!(*at++ & 0x80)) break;
  }
  *number = (int64_t)(code >> 1) ^ -(int64_t)(code & 1);
  return at;
}

static char* put(char* at, int64_t number) {
  uint64_t code = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
  for (; code >= 0x80; code >>= 7) *at++ = (char)(code | 0x80);
  *at++ = (char)code;
  return at;
}

static char* put_text(char* at, const char* text) {
  const size_t size = strlen(text);
  memcpy(at, text, size);
  return at + size;
}

// Writes the record with another value; its headers follow the old one.
static void write_value(int32_t size, const char* value) {
  int64_t key, old;
  const char* after_key = take(input, &key);
  after_key += key > 0 ? key : 0;
  const char* headers = take(after_key, &old);
  headers += old > 0 ? old : 0;
  char* at = output;
  memcpy(at, input, (size_t)(after_key - input));
  at = put(at + (after_key - input), (int64_t)strlen(value));
  at = put_text(at, value);
  const size_t rest = (size_t)(input + size - headers);
  memcpy(at, headers, rest);
  const int32_t written = (int32_t)(at + rest - output);
  must(write_record(output, (uint32_t)written) == written);
}

static void log_value(void) {
  int64_t key, value;
  const char* at = take(input, &key);
  at = take(at + (key > 0 ? key : 0), &value);
  char* line = output;
  if (value > 0) memcpy(line, at, (size_t)value);
  line[value > 0 ? value : 0] = '\n';
  must(write(STDERR_FILENO, line, (size_t)(value > 0 ? value : 0) + 1) > 0);
}

static void act(int32_t size, int64_t timestamp) {
  int64_t length;
  const char* key = take(input, &length);
#define STARTS(word) (length >= (int64_t)strlen(word) && memcmp(key, word, strlen(word)) == 0)
  if (STARTS("second")) {
    must(write_record_with_options(input, (uint32_t)size, topic_option, (uint32_t)topic_option_size) == size);
    return;
  }
  if (STARTS("drop")) return;
  if (STARTS("log")) {
    log_value();
    return;
  }
  if (STARTS("time")) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)timestamp);
    write_value(size, text);
    return;
  }
  if (STARTS("env")) {
    write_value(size, getenv("GREETING"));
    return;
  }
  must(write_record(input, (uint32_t)size) == size);
  if (STARTS("twice")) must(write_record(input, (uint32_t)size) == size);
  if (STARTS("fail")) abort();
}

// A registry that is not enabled says so.
static void ask_the_registry(void) {
  int32_t answer = 0;
  char blob[8];
  check_abi_version_0();
  must(get_schema_definition_len(1, &answer) == -1 && get_schema_definition(1, blob, sizeof blob) == -1);
  must(get_subject_schema_len("s", 1, -1, &answer) == -1 && get_subject_schema("s", 1, -1, blob, sizeof blob) == -1);
  must(create_subject_schema("s", 1, blob, 0, &answer) == -1);
}

int main(void) {
  check_abi_version_1();
  ask_the_registry();
  const char* topic = getenv("REDPANDA_OUTPUT_TOPIC_1");
  must(topic != NULL && strlen(topic) < 100);
  topic_option[0] = 1;
  topic_option_size = (int32_t)(put_text(put(topic_option + 1, (int64_t)strlen(topic)), topic) - topic_option);
  while (1) {
    int64_t base_offset, base_timestamp, max_timestamp, producer_id, timestamp, offset;
    int32_t records, epoch, delta, sequence;
    int16_t attributes, producer_epoch;
    uint8_t flags;
    const int32_t largest = read_batch_header(&base_offset, &records, &epoch, &attributes, &delta, &base_timestamp,
                                              &max_timestamp, &producer_id, &producer_epoch, &sequence);
    must(largest >= 0);
    input = realloc(input, (size_t)largest + 1);
    output = realloc(output, (size_t)largest + 64);
    for (; records > 0; --records) {
      const int32_t size = read_next_record(&flags, &timestamp, &offset, input, (uint32_t)largest);
      must(size >= 0);
      act(size, timestamp);
    }
  }
}
