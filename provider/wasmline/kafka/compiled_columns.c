// Copies records between librdkafka and Arrow's columns, without a Python object for each of them.
//
// Nothing of librdkafka is linked: Python passes the addresses of the functions in the library that the client has
// loaded. Columns travel by Arrow's C data interface. The schemas are RECORD_SCHEMA and TIMED_OUTPUT_SCHEMA of the
// Python side, compiled_columns.py, which also declares the structures below that are marked as shared.

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define EXPORTED __attribute__((visibility("default")))

struct ArrowArray {  // https://arrow.apache.org/docs/format/CDataInterface.html
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

struct message {  // rd_kafka_message_t of rdkafka.h
  int error;
  void *topic;
  int32_t partition;
  char *value;
  size_t value_size;
  char *key;
  size_t key_size;
  int64_t offset;
  void *opaque;
};

// Tags of the arguments of rd_kafka_producev, and error codes: rdkafka.h.
enum { END = 0, RKT = 2, PARTITION = 3, VALUE = 4, KEY = 5, OPAQUE = 6, FLAGS = 7, TIMESTAMP = 8, HEADERS = 10 };
enum { ANY_PARTITION = -1, COPY = 2, QUEUE_FULL = -184, INVALID_ARGUMENT = -186, NO_MEMORY = -1 };

typedef int on_acknowledgement(void *client, struct message *, void *opaque);
typedef int on_new(void *client, const void *conf, void *opaque, char *reason, size_t reason_size);

static struct functions {  // shared; the functions of librdkafka by their names there
  ssize_t (*consume_batch_queue)(void *queue, int timeout_ms, struct message **, size_t most);
  int64_t (*message_timestamp)(const struct message *, int *kind);
  int (*message_headers)(const struct message *, void **headers);
  int (*header_get_all)(const void *headers, size_t index, const char **name, const void **value, size_t *size);
  void (*message_destroy)(struct message *);
  void *(*headers_new)(size_t count);
  int (*header_add)(void *headers, const char *name, ssize_t name_size, const void *value, ssize_t size);
  void (*headers_destroy)(void *headers);
  void *(*topic_new)(void *client, const char *name, void *conf);
  void (*topic_destroy)(void *topic);
  int (*last_error)(void);
  int (*producev)(void *client, ...);
  int (*conf_interceptor_add_on_new)(void *conf, const char *name, on_new *, void *opaque);
  int (*interceptor_add_on_acknowledgement)(void *client, const char *name, on_acknowledgement *, void *opaque);
} kafka;

EXPORTED void wasmline_bind(const struct functions *functions) { kafka = *functions; }

// -- reading ----------------------------------------------------------------------------------------------------------

struct part {  // shared; the records of one partition, in their order
  void *topic;
  int32_t partition;
  int64_t next, rows;  // next: where its next message is sorted to
  int64_t key_bytes, value_bytes, headers, name_bytes, header_bytes;
  struct ArrowArray columns;  // a batch of RECORD_SCHEMA
};

struct reading {  // shared; what the last call of wasmline_read has found, and room for it
  int64_t capacity, messages_found, errors_found, parts_found;
  struct message **messages, **sorted;
  struct message **errors;  // reported in place of records; they last until the next read
  struct part *parts;
  int32_t *part_of;  // of each message
};

enum { KEY_COLUMN, VALUE_COLUMN, HEADERS_COLUMN, TIME_COLUMN, PARTITION_COLUMN, OFFSET_COLUMN, COLUMNS };
enum { PAIRS = COLUMNS, HEADER_NAME, HEADER_VALUE, ARRAYS };

struct memory {  // of one batch: its arrays, and behind them their data
  _Atomic int arrays_left;
  struct ArrowArray arrays[ARRAYS];
  struct ArrowArray *columns[COLUMNS], *pairs[1], *fields[2];
  const void *buffers[ARRAYS + 1][3];
};

struct bytes_column {
  uint8_t *valid;
  int32_t *ends;  // the first is 0
  char *data;
  int64_t nulls;
};

static void release(struct ArrowArray *array) {
  struct memory *memory = array->private_data;
  for (int64_t i = 0; i < array->n_children; i++)
    if (array->children[i]->release) array->children[i]->release(array->children[i]);
  array->release = NULL;
  if (atomic_fetch_sub(&memory->arrays_left, 1) == 1) free(memory);
}

static struct ArrowArray array_of(struct memory *memory, int number, int64_t length, int buffers) {
  return (struct ArrowArray){.length = length, .n_buffers = buffers, .buffers = memory->buffers[number],
                             .release = release, .private_data = memory};
}

static void set_children(struct ArrowArray *array, int64_t children, struct ArrowArray **first) {
  array->n_children = children;
  array->children = first;
}

static void *carve(char **unused, size_t bytes) {
  char *carved = *unused;
  *unused += (bytes + 63) & ~(size_t)63;
  return carved;
}

static struct bytes_column bytes_column(char **unused, int64_t rows, int64_t bytes) {
  struct bytes_column column = {.valid = carve(unused, rows / 8 + 1), .ends = carve(unused, (rows + 1) * 4)};
  column.data = carve(unused, bytes);
  memset(column.valid, 0, rows / 8 + 1);
  column.ends[0] = 0;
  return column;
}

static void append(struct bytes_column *column, int64_t row, const void *bytes, size_t size) {
  int32_t end = column->ends[row];
  if (bytes) {
    memcpy(column->data + end, bytes, size);
    end += (int32_t)size;
    column->valid[row >> 3] |= 1 << (row & 7);
  } else {
    column->nulls++;
  }
  column->ends[row + 1] = end;
}

static void set_bytes(struct memory *memory, int number, int64_t rows, const struct bytes_column *column) {
  memory->buffers[number][0] = column->valid;
  memory->buffers[number][1] = column->ends;
  memory->buffers[number][2] = column->data;
  memory->arrays[number] = array_of(memory, number, rows, 3);
  memory->arrays[number].null_count = column->nulls;
}

static void set_numbers(struct memory *memory, int number, int64_t rows, const void *numbers) {
  memory->buffers[number][1] = numbers;
  memory->arrays[number] = array_of(memory, number, rows, 2);
}

static void *headers_of(const struct message *message) {
  void *headers = NULL;
  return kafka.message_headers(message, &headers) ? NULL : headers;
}

// Copies the messages of a part into its columns. Returns 0 or NO_MEMORY.
static int fill(struct part *part, struct message **messages) {
  int64_t rows = part->rows, bytes = part->key_bytes + part->value_bytes + part->name_bytes + part->header_bytes;
  struct memory *memory = malloc(sizeof(struct memory) + bytes + rows * 40 + part->headers * 16 + 2048);  // at most
  if (!memory) return NO_MEMORY;
  memset(memory, 0, sizeof(struct memory));
  char *unused = (char *)(((uintptr_t)(memory + 1) + 63) & ~(uintptr_t)63);
  struct bytes_column keys = bytes_column(&unused, rows, part->key_bytes);
  struct bytes_column values = bytes_column(&unused, rows, part->value_bytes);
  struct bytes_column names = bytes_column(&unused, part->headers, part->name_bytes);
  struct bytes_column header_values = bytes_column(&unused, part->headers, part->header_bytes);
  struct bytes_column lists = bytes_column(&unused, rows, 0);
  int64_t *times = carve(&unused, rows * 8), *offsets = carve(&unused, rows * 8), header = 0;
  int32_t *partitions = carve(&unused, rows * 4);
  for (int64_t row = 0; row < rows; row++) {
    const struct message *message = messages[row];
    append(&keys, row, message->key, message->key_size);
    append(&values, row, message->value, message->value_size);
    int kind;
    times[row] = kafka.message_timestamp(message, &kind);
    offsets[row] = message->offset;
    partitions[row] = message->partition;
    void *headers = part->headers ? headers_of(message) : NULL;
    const char *name;
    const void *value;
    size_t size;
    for (size_t i = 0; headers && kafka.header_get_all(headers, i, &name, &value, &size) == 0; i++, header++) {
      append(&names, header, name, strlen(name));
      append(&header_values, header, value, size);
    }
    append(&lists, row, header > lists.ends[row] ? lists.data : NULL, 0);
    lists.ends[row + 1] = (int32_t)header;
  }
  set_bytes(memory, KEY_COLUMN, rows, &keys);
  set_bytes(memory, VALUE_COLUMN, rows, &values);
  set_bytes(memory, HEADER_NAME, header, &names);
  set_bytes(memory, HEADER_VALUE, header, &header_values);
  set_bytes(memory, HEADERS_COLUMN, rows, &lists);
  set_numbers(memory, TIME_COLUMN, rows, times);
  set_numbers(memory, PARTITION_COLUMN, rows, partitions);
  set_numbers(memory, OFFSET_COLUMN, rows, offsets);
  memory->arrays[PAIRS] = array_of(memory, PAIRS, header, 1);
  memory->arrays[HEADERS_COLUMN].n_buffers = 2;  // a list has no data of its own
  for (int i = 0; i < COLUMNS; i++) memory->columns[i] = &memory->arrays[i];
  memory->pairs[0] = &memory->arrays[PAIRS];
  memory->fields[0] = &memory->arrays[HEADER_NAME];
  memory->fields[1] = &memory->arrays[HEADER_VALUE];
  set_children(&memory->arrays[HEADERS_COLUMN], 1, memory->pairs);
  set_children(&memory->arrays[PAIRS], 2, memory->fields);
  part->columns = array_of(memory, ARRAYS, rows, 1);
  set_children(&part->columns, COLUMNS, memory->columns);
  atomic_init(&memory->arrays_left, ARRAYS + 1);
  return 0;
}

// Adds a message to a part unless that would have more bytes than Arrow's offsets count.
static int try_add(struct part *part, const struct message *message) {
  int64_t added[] = {part->key_bytes + message->key_size, part->value_bytes + message->value_size, part->headers,
                     part->name_bytes, part->header_bytes};
  const char *name;
  const void *value;
  size_t size;
  void *headers = headers_of(message);
  for (size_t i = 0; headers && kafka.header_get_all(headers, i, &name, &value, &size) == 0; i++) {
    added[2]++;
    added[3] += strlen(name);
    added[4] += size;
  }
  for (int i = 0; part->rows && i < 5; i++)
    if (added[i] > INT32_MAX) return 0;
  part->rows++;
  part->key_bytes = added[0], part->value_bytes = added[1];
  part->headers = added[2], part->name_bytes = added[3], part->header_bytes = added[4];
  return 1;
}

// Returns the part of a message, which is added to it. Most messages follow one of the same partition.
static int32_t add(struct reading *reading, const struct message *message, int32_t before) {
  for (int64_t i = reading->parts_found; i >= 0; i--) {
    int64_t number = i == reading->parts_found ? before : i;
    struct part *part = &reading->parts[number];
    if (number >= reading->parts_found || part->partition != message->partition || part->topic != message->topic)
      continue;
    if (try_add(part, message)) return (int32_t)number;
    break;
  }
  struct part *part = &reading->parts[reading->parts_found];
  *part = (struct part){.topic = message->topic, .partition = message->partition};
  try_add(part, message);
  return (int32_t)reading->parts_found++;
}

static void clear(struct reading *reading) {
  for (int64_t i = 0; i < reading->errors_found; i++) kafka.message_destroy(reading->errors[i]);
  for (int64_t i = 0; i < reading->parts_found; i++)
    if (reading->parts[i].columns.release) reading->parts[i].columns.release(&reading->parts[i].columns);
  reading->errors_found = reading->parts_found = 0;
}

// Makes columns of some messages, which stay the caller's; those with errors are kept. Returns 0 or NO_MEMORY.
static int make_columns(struct reading *reading, int64_t count) {
  struct message **messages = reading->messages;
  int64_t records = 0, first = 0;
  int32_t part = 0;
  for (int64_t i = 0; i < count; i++) {
    if (messages[i]->error) {
      reading->errors[reading->errors_found++] = messages[i];
      continue;
    }
    part = add(reading, messages[i], part);
    reading->part_of[records] = part;
    messages[records++] = messages[i];
  }
  reading->messages_found = records;
  for (int64_t i = 0; i < reading->parts_found; i++) {
    reading->parts[i].next = first;
    first += reading->parts[i].rows;
  }
  for (int64_t i = 0; i < records; i++) reading->sorted[reading->parts[reading->part_of[i]].next++] = messages[i];
  for (int64_t i = 0; i < reading->parts_found; i++)
    if (fill(&reading->parts[i], reading->sorted + reading->parts[i].next - reading->parts[i].rows)) return NO_MEMORY;
  return 0;
}

EXPORTED void wasmline_reading_free(struct reading *reading) {
  clear(reading);
  free(reading->messages), free(reading->sorted), free(reading->errors), free(reading->parts), free(reading->part_of);
  free(reading);
}

// Returns room for `capacity` messages, or NULL.
EXPORTED struct reading *wasmline_reading_new(int64_t capacity) {
  struct reading *reading = calloc(1, sizeof(struct reading));
  if (!reading) return NULL;
  reading->capacity = capacity;
  reading->messages = calloc(capacity, sizeof(void *));
  reading->sorted = calloc(capacity, sizeof(void *));
  reading->errors = calloc(capacity, sizeof(void *));
  reading->parts = calloc(capacity, sizeof(struct part));
  reading->part_of = calloc(capacity, sizeof(int32_t));
  if (reading->messages && reading->sorted && reading->errors && reading->parts && reading->part_of) return reading;
  wasmline_reading_free(reading);
  return NULL;
}

// Reads up to `most` messages of a queue, and waits for the first. Returns 0 or NO_MEMORY, which loses what was read.
EXPORTED int wasmline_read(struct reading *reading, void *queue, int timeout_ms, int64_t most) {
  clear(reading);
  if (most > reading->capacity) most = reading->capacity;
  ssize_t found = 0, more = 0;
  if (timeout_ms > 0 && most > 0) found = kafka.consume_batch_queue(queue, timeout_ms, reading->messages, 1);
  if (found < 0) found = 0;
  if (most > found) more = kafka.consume_batch_queue(queue, 0, reading->messages + found, most - found);
  int failure = make_columns(reading, found + (more < 0 ? 0 : more));
  for (int64_t i = 0; i < reading->messages_found; i++) kafka.message_destroy(reading->messages[i]);
  return failure;
}

// -- writing ----------------------------------------------------------------------------------------------------------

struct slot {  // of one output, until its delivery is known
  struct writing *writing;  // NULL: it is known
  _Atomic int error;        // 0: none, or it was reported
};

struct writing {  // the outputs of one call
  int64_t rows, next;      // next: the first row that the client does not have yet
  _Atomic int64_t holders; // rows whose delivery is not known, and Python
  _Atomic int64_t failures;
  struct ArrowArray outputs;  // a batch of TIMED_OUTPUT_SCHEMA, until the client has all of it
  struct reading *capture;      // where the client's messages are copied to when their delivery is known, or NULL
  struct slot slots[];
};

enum { ROW, OUTPUT, OUTPUT_KEY, OUTPUT_VALUE, OUTPUT_HEADERS, OUTPUT_TIME };

struct bytes {
  const char *data;  // NULL: null
  size_t size;
};

static int is_null(const struct ArrowArray *array, int64_t row) {
  const uint8_t *valid = array->buffers[0];
  return array->null_count != 0 && valid && !(valid[row >> 3] >> (row & 7) & 1);
}

static struct bytes bytes_at(const struct ArrowArray *array, int64_t row) {
  row += array->offset;
  if (is_null(array, row)) return (struct bytes){NULL, 0};
  const int32_t *ends = array->buffers[1];
  const char *data = array->buffers[2];
  return (struct bytes){data ? data + ends[row] : "", ends[row + 1] - ends[row]};
}

static void drop(struct writing *writing, int64_t holders) {
  if (atomic_fetch_sub(&writing->holders, holders) == holders) free(writing);
}

static void answer(struct slot *slot, int error) {
  struct writing *writing = slot->writing;
  slot->writing = NULL;
  if (error) {
    atomic_store(&slot->error, error);
    atomic_fetch_add(&writing->failures, 1);
  }
  drop(writing, 1);
}

// A message's opaque is its slot with the lowest bit set. The client's own opaques are pointers that Python allocated,
// and the client ignores a message without one.
static int note_delivery(void *client, struct message *message, void *unused) {
  (void)client, (void)unused;
  uintptr_t opaque = (uintptr_t)message->opaque;
  if (!(opaque & 1)) return 0;
  struct slot *slot = (struct slot *)(opaque - 1);
  message->opaque = NULL;
  struct reading *capture = slot->writing->capture;
  if (capture && !capture->parts_found) {
    int error = message->error;
    message->error = 0;
    capture->messages[0] = message;
    make_columns(capture, 1);
    message->error = error;
  }
  answer(slot, message->error);
  return 0;
}

static int add_interceptor(void *client, const void *conf, void *unused, char *reason, size_t size) {
  (void)conf, (void)unused, (void)reason, (void)size;
  return kafka.interceptor_add_on_acknowledgement(client, "wasmline", note_delivery, NULL);
}

// librdkafka calls this for a client whose plugin.library.paths names this library.
EXPORTED int conf_init(void *conf, void **unused, char *reason, size_t size) {
  (void)unused, (void)reason, (void)size;
  return kafka.conf_interceptor_add_on_new(conf, "wasmline", add_interceptor, NULL);
}

// Takes the outputs over; returns NULL if there is no memory.
EXPORTED struct writing *wasmline_writing_new(struct ArrowArray *outputs, struct reading *capture) {
  struct writing *writing = calloc(1, sizeof(struct writing) + outputs->length * sizeof(struct slot));
  if (!writing) return NULL;
  writing->rows = outputs->length;
  writing->outputs = *outputs;
  writing->capture = capture;
  outputs->release = NULL;
  atomic_init(&writing->holders, writing->rows + 1);
  return writing;
}

static void release_outputs(struct writing *writing) {
  if (writing->outputs.release) writing->outputs.release(&writing->outputs);
}

// Called once, when Python has no more use for it. What the client has may still be delivered.
EXPORTED void wasmline_writing_free(struct writing *writing) {
  release_outputs(writing);
  drop(writing, 1 + writing->rows - writing->next);
}

static void *headers_at(const struct ArrowArray *lists, int64_t row) {
  row += lists->offset;
  const int32_t *ends = lists->buffers[1];
  if (is_null(lists, row) || ends[row] == ends[row + 1]) return NULL;
  const struct ArrowArray *pairs = lists->children[0];
  void *headers = kafka.headers_new(ends[row + 1] - ends[row]);
  for (int64_t i = ends[row] + pairs->offset; i < ends[row + 1] + pairs->offset; i++) {
    struct bytes name = bytes_at(pairs->children[0], i), value = bytes_at(pairs->children[1], i);
    kafka.header_add(headers, name.data, name.size, value.data, value.size);
  }
  return headers;
}

static int produce(void *client, void *topic, const struct writing *writing, int64_t row, void *opaque) {
  struct ArrowArray **columns = writing->outputs.children;
  struct bytes key = bytes_at(columns[OUTPUT_KEY], row), value = bytes_at(columns[OUTPUT_VALUE], row);
  int64_t time = ((const int64_t *)columns[OUTPUT_TIME]->buffers[1])[row + columns[OUTPUT_TIME]->offset];
  void *headers = headers_at(columns[OUTPUT_HEADERS], row);
  int error = headers ? kafka.producev(client, RKT, topic, PARTITION, ANY_PARTITION, FLAGS, COPY, KEY, key.data, key.size,
                                       VALUE, value.data, value.size, TIMESTAMP, time, OPAQUE, opaque, HEADERS, headers, END)
                      : kafka.producev(client, RKT, topic, PARTITION, ANY_PARTITION, FLAGS, COPY, KEY, key.data, key.size,
                                       VALUE, value.data, value.size, TIMESTAMP, time, OPAQUE, opaque, END);
  if (error && headers) kafka.headers_destroy(headers);  // otherwise the client's
  return error;
}

static int topic_error(void) {
  int error = kafka.last_error();
  return error ? error : INVALID_ARGUMENT;
}

// Passes outputs to the client until its queue is full or it has all of them. names: of the output topics, by number.
// topics: room for as many handles. Returns the number of rows that it does not have.
EXPORTED int64_t wasmline_write(struct writing *writing, void *client, const char **names, void **topics, int count) {
  memset(topics, 0, count * sizeof(void *));
  for (; writing->next < writing->rows; writing->next++) {
    const struct ArrowArray *numbers = writing->outputs.children[OUTPUT];
    int32_t number = ((const int32_t *)numbers->buffers[1])[writing->next + numbers->offset];
    struct slot *slot = &writing->slots[writing->next];
    slot->writing = writing;
    if (!topics[number]) topics[number] = kafka.topic_new(client, names[number], NULL);
    int error = topics[number] ? produce(client, topics[number], writing, writing->next, (char *)slot + 1) : topic_error();
    if (error == QUEUE_FULL) break;
    if (error && slot->writing) answer(slot, error);  // the client reports the delivery of some that it refuses, too
  }
  for (int i = 0; i < count; i++)
    if (topics[i]) kafka.topic_destroy(topics[i]);
  if (writing->next == writing->rows) release_outputs(writing);
  return writing->rows - writing->next;
}

// Returns the number of rows whose delivery is not known, and in *failures the number of failures to report.
EXPORTED int64_t wasmline_unanswered(struct writing *writing, int64_t *failures) {
  int64_t unanswered = atomic_load(&writing->holders) - 1;
  *failures = atomic_load(&writing->failures);
  return unanswered;
}

// Reports up to `most` failures, each once: their rows and error codes. Returns their number.
EXPORTED int64_t wasmline_failures(struct writing *writing, int64_t *rows, int *errors, int64_t most) {
  int64_t found = 0;
  for (int64_t i = 0; i < writing->next && found < most; i++) {
    int error = atomic_exchange(&writing->slots[i].error, 0);
    if (!error) continue;
    rows[found] = i;
    errors[found++] = error;
  }
  atomic_fetch_sub(&writing->failures, found);
  return found;
}

EXPORTED void wasmline_layout(int64_t *sizes) {  // of the structures that Python declares, too
  sizes[0] = sizeof(struct functions), sizes[1] = sizeof(struct part), sizes[2] = sizeof(struct reading);
  sizes[3] = sizeof(struct message), sizes[4] = sizeof(struct ArrowArray);
}
