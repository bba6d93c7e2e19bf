// Tests reading.

#pragma once

#include "array_checks.h"
#include "simulated_messages.h"

struct held {  // an array that was taken over
  struct ArrowArray array;
  enum kind kind;
  uint64_t sum;
};

static struct held *held;
static int64_t held_count, held_room;

static void take(struct ArrowArray *array, enum kind kind);

static void take_children(struct ArrowArray *array, enum kind kind, int percent) {
  for (int64_t i = 0; i < array->n_children; i++) {
    if (chance(percent))
      take(array->children[i], kind_of_child(kind, i));
    else
      take_children(array->children[i], kind_of_child(kind, i), percent);
  }
}

// Moves an array out of its place, as an importer does, and some of its children before it.
static void take(struct ArrowArray *array, enum kind kind) {
  take_children(array, kind, chance(30) ? 30 : 0);
  if (held_count == held_room) CHECK((held = realloc(held, (held_room = held_room * 2 + 8) * sizeof(struct held))));
  held[held_count++] = (struct held){*array, kind, digest(array, kind)};
  array->release = NULL;
}

static void release_array(struct held *each) {
  CHECK(digest(&each->array, each->kind) == each->sum);
  each->array.release(&each->array);
  CHECK(!each->array.release);
}

static void release_held(int64_t count) {
  while (count-- > 0 && held_count) {
    int64_t number = below(held_count);
    struct held each = held[number];
    held[number] = held[--held_count];
    release_array(&each);
  }
}

static struct {  // what consume_batch_queue returns
  struct record *records;
  int64_t count, next, begin, most;  // begin: the first of this read
} queue;

static ssize_t consume_batch_queue(void *handle, int timeout_ms, struct message **messages, size_t most) {
  CHECK(handle == &queue && most > 0 && timeout_ms >= 0);
  CHECK(queue.next - queue.begin + (int64_t)most <= queue.most);
  if (chance(8)) return -1;
  int64_t found = queue.count - queue.next;
  if (found > (int64_t)most) found = (int64_t)most;
  if (chance(15)) found = below(found + 1);
  for (int64_t i = 0; i < found; i++) {
    struct record *record = &queue.records[queue.next++];
    record->state = READ;
    messages[i] = &message_of(record)->message;
  }
  return found;
}

struct expected {  // a part
  const struct record *first;
  int64_t rows, sums[5];
  const struct record **records;
};

static bool fits(struct expected *part, const struct record *record) {
  int64_t sums[5];
  memcpy(sums, part->sums, sizeof(sums));
  sums[0] += (int64_t)record->key.size, sums[1] += (int64_t)record->value.size, sums[2] += record->headers.count;
  for (int i = 0; i < record->headers.count; i++) {
    sums[3] += (int64_t)record->headers.pairs[i].name.size;
    sums[4] += (int64_t)record->headers.pairs[i].value.size;
  }
  for (int i = 0; i < 5; i++)
    if (part->rows && sums[i] > part_limit) return false;
  memcpy(part->sums, sums, sizeof(sums));
  return true;
}

static bool is_of(const struct expected *part, const struct record *record) {
  return part->first->topic == record->topic && part->first->partition == record->partition;
}

static int64_t expected_parts(struct expected *parts) {
  int64_t count = 0;
  for (int64_t i = queue.begin; i < queue.next; i++) {
    const struct record *record = &queue.records[i];
    if (record->error) continue;
    int64_t number = count - 1;
    while (number >= 0 && !is_of(&parts[number], record)) number--;
    if (number < 0 || !fits(&parts[number], record)) {
      number = count++;
      parts[number] = (struct expected){.first = record, .records = block_of((queue.next - i) * sizeof(void *))};
      fits(&parts[number], record);
    }
    parts[number].records[parts[number].rows++] = record;
  }
  return count;
}

static void check_part(const struct part *part, const struct expected *expected) {
  struct span spans[32];
  int count = 0;
  CHECK(part->topic == &topic_handles[expected->first->topic] && part->partition == expected->first->partition);
  CHECK(part->rows == expected->rows && part->columns.length == expected->rows);
  CHECK(part->key_bytes == expected->sums[0] && part->value_bytes == expected->sums[1]);
  CHECK(part->headers == expected->sums[2]);
  CHECK(part->name_bytes == expected->sums[3] && part->header_bytes == expected->sums[4]);
  check_layout(&part->columns, BATCH, part->rows, spans, &count);
  for (int64_t row = 0; row < part->rows; row++) check_row(&part->columns, row, expected->records[row]);
}

static void read_once(struct reading *reading) {
  static const int64_t LIMITS[] = {0, 1, 20, 300, INT32_MAX};
  static const int HEADERS_PERCENT[] = {0, 10, 100};
  int partitions = chance(40) ? 1 : 1 + (int)below(4), topics = chance(40) ? 1 : 1 + (int)below(TOPICS);
  int with_headers = HEADERS_PERCENT[below(3)];
  int errors = chance(50) ? 0 : 20, timeout_ms = chance(50) ? 0 : 20;
  int64_t most = chance(20) ? below(3) - 1 : 1 + below(reading->capacity * 2), before = queue.next;
  struct record *earlier = queue.records;
  queue.count = chance(10) ? 0 : below(reading->capacity * 3 / 2 + 2);
  queue.records = block_of(queue.count * sizeof(struct record));
  queue.next = queue.begin = 0, queue.most = most < reading->capacity ? most : reading->capacity;
  part_limit = LIMITS[below(5)];
  for (int64_t i = 0; i < queue.count; i++) {
    struct record *record = &queue.records[i];
    make_record(record, topics, partitions, with_headers);
    if (chance(errors)) record->error = -191;
    if (i && chance(60)) record->topic = record[-1].topic, record->partition = record[-1].partition;
  }
  has_failed = false;
  int failure = wasmline_read(reading, &queue, timeout_ms, most);
  CHECK(failure == (has_failed ? NO_MEMORY : 0));
  int64_t errors_seen = 0, records_seen = 0;
  for (int64_t i = 0; i < queue.next; i++) {
    CHECK(queue.records[i].state == (queue.records[i].error ? READ : DESTROYED));
    if (queue.records[i].error)
      CHECK(((struct delivered *)reading->errors[errors_seen++])->record == &queue.records[i]);
    else
      records_seen++;
  }
  CHECK(reading->errors_found == errors_seen && reading->messages_found == records_seen);
  CHECK(live_messages == errors_seen);
  for (int64_t i = 0; i < before; i++) CHECK(earlier[i].state == DESTROYED);
  struct expected *parts = block_of((queue.next + 1) * sizeof(struct expected));
  int64_t count = expected_parts(parts);
  CHECK(reading->parts_found == count);
  for (int64_t i = 0; i < count; i++) {
    struct ArrowArray *columns = &reading->parts[i].columns;
    if (!failure) check_part(&reading->parts[i], &parts[i]);
    free(parts[i].records);
    if (!columns->release) continue;  // no memory
    if (chance(60))
      take(columns, BATCH);
    else if (chance(30))
      columns->release(columns);
    else if (chance(50))
      take_children(columns, BATCH, 30);
  }
  free(parts);
}

static void try_reads(void) {
  static const int64_t CAPACITIES[] = {1, 2, 2, 5, 16, 16, 50, 50, 200, 1200};
  has_failed = false;
  allocations_left = chance(30) ? below(12) : -1;
  struct reading *reading = wasmline_reading_new(CAPACITIES[below(10)]);
  CHECK(!reading == has_failed);
  memset(&queue, 0, sizeof(queue));
  struct record *earlier = NULL;
  int64_t earlier_count = 0;
  for (int64_t reads = 1 + below(5); reading && reads; reads--) {
    read_once(reading);
    free_records(earlier, earlier_count);
    earlier = queue.records, earlier_count = queue.count;
    if (chance(50)) release_held(below(6));
  }
  allocations_left = -1;
  if (chance(50)) release_held(held_count);
  if (reading) wasmline_reading_free(reading);
  free_records(earlier, earlier_count);
  release_held(held_count);
  CHECK(allocated == 0 && live_messages == 0 && live_headers == 0);
}
