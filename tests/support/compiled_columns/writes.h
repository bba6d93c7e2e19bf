// Tests writing.

#pragma once

#include "made_arrays.h"
#include "reads.h"
#include "simulated_producer.h"

static bool begin_write(struct write *write, struct reading *trial) {
  static const char *const NAMES[OUTPUTS] = {"first", "second", "", "fourth"};
  static const int HEADERS_PERCENT[] = {0, 30, 100};
  int with_headers = HEADERS_PERCENT[below(3)];
  *write = (struct write){.outputs = 1 + (int)below(OUTPUTS)};
  write->rows = chance(15) ? below(2) : below(chance(90) ? 30 : 300);
  write->records = block_of(write->rows * sizeof(struct record));
  for (int64_t i = 0; i < write->rows; i++) make_record(&write->records[i], write->outputs, 3, with_headers);
  write->names = block_of(write->outputs * sizeof(char *));
  memcpy(write->names, NAMES, write->outputs * sizeof(char *));
  write->handles = block_of(write->outputs * sizeof(void *));
  write->states = block_of(write->rows * sizeof(*write->states));
  write->codes = block_of(write->rows * sizeof(int));
  for (int64_t i = 0; i < write->rows; i++) write->states[i] = UNANSWERED;
  write->arrays = live_arrays;
  struct ArrowArray batch = output_batch(write->records, write->rows);
  has_failed = false;
  write->writing = wasmline_writing_new(&batch, trial);
  CHECK(!write->writing == has_failed && !batch.release == !has_failed);
  if (!write->writing) batch.release(&batch);
  return write->writing;
}

static void end_write(struct write *write) {
  free_records(write->records, write->rows);
  free(write->names), free(write->handles), free(write->states), free(write->codes);
}

static void write_some(struct write *write) {
  int arrays = live_arrays;
  bool is_complete = write->next == write->rows;
  writer = write;
  memset(write->handles, 0x5a, write->outputs * sizeof(void *));
  int64_t left = wasmline_write(write->writing, &client, write->names, write->handles, write->outputs);
  writer = NULL;
  CHECK(left == write->rows - write->next);
  for (int i = 0; i < OUTPUTS; i++) CHECK(!live_topics[i]);
  CHECK(left || is_complete ? live_arrays == arrays || !left : live_arrays < arrays);
}

static int64_t count_of(const struct write *write, int state) {
  int64_t count = 0;
  for (int64_t i = 0; i < write->rows; i++) count += (int)write->states[i] == state;
  return count;
}

static void report(struct write *write, int64_t most) {
  int64_t *rows = block_of(most * sizeof(int64_t));
  int *codes = block_of(most * sizeof(int));
  int64_t found = wasmline_failures(write->writing, rows, codes, most);
  CHECK(found >= 0 && found <= most);
  pthread_mutex_lock(&lock);
  for (int64_t i = 0; i < found; i++) {
    CHECK(rows[i] >= 0 && rows[i] < write->next);
    CHECK(write->states[rows[i]] == FAILED && write->codes[rows[i]] == codes[i]);
    write->states[rows[i]] = REPORTED;
  }
  pthread_mutex_unlock(&lock);
  free(rows), free(codes);
}

static void check_answers(const struct write *write) {
  int64_t failures = -1, unanswered = wasmline_unanswered(write->writing, &failures);
  CHECK(unanswered == count_of(write, UNANSWERED) + count_of(write, SENT));
  CHECK(failures == count_of(write, FAILED));
}

static void free_write(struct write *write) {
  wasmline_writing_free(write->writing);
  write->writing = NULL;
}

static void set_weather(void) {
  topic_failures = chance(60) ? 0 : (int)below(60), full_percent = chance(30) ? 0 : (int)below(30);
  error_percent = chance(50) ? 0 : (int)below(40), refusal_percent = chance(50) ? 0 : (int)below(40);
}

// Checks what a trial was given: the message of the first answer.
static void check_trial(struct reading *trial, const struct write *write) {
  if (!trial->parts_found) return;
  CHECK(trial->parts_found == 1 && trial->errors_found == 0);
  struct ArrowArray *columns = &trial->parts[0].columns;
  if (has_failed && !columns->release) return;
  struct span spans[32];
  int count = 0;
  CHECK(columns->length == 1);
  check_layout(columns, BATCH, 1, spans, &count);
  check_row(columns, 0, &write->records[0]);
  if (chance(50)) take(columns, BATCH);
}

static void try_trial(void) {
  struct reading *trial = wasmline_reading_new(1);
  struct write write = {0};
  bool is_made = trial && begin_write(&write, trial);
  if (is_made) {
    topic_failures = full_percent = error_percent = 0, refusal_percent = chance(20) ? 100 : 0;
    if (chance(50)) {  // in flight until all are passed, and answered in their order
      write_some(&write);
      while (in_flight_count) {
        struct sent first = in_flight[0];
        memmove(in_flight, in_flight + 1, --in_flight_count * sizeof(struct sent));
        deliver(&first, 30);
      }
      check_trial(trial, &write);
      check_answers(&write);
    }
    free_write(&write);
    deliver_some(in_flight_count, 30);
  }
  allocations_left = -1;
  if (trial) wasmline_reading_free(trial);
  release_held(held_count);
  if (write.records) end_write(&write);
}

static void try_writes(void) {
  struct write writes[MAX_WRITES];
  int count = 1 + (int)below(MAX_WRITES), failure_percent = chance(50) ? 0 : (int)below(100);
  part_limit = INT32_MAX;
  allocations_left = chance(20) ? below(9) : -1;
  if (chance(15)) {
    try_trial();
    count = 0;
  }
  for (int i = 0; i < count; i++) begin_write(&writes[i], NULL);
  set_weather();
  for (int64_t steps = below(80); count && steps; steps--) {
    struct write *write = &writes[below(count)];
    int action = (int)below(12);
    if (action < 3) deliver_some(below(10), failure_percent);
    if (action == 3) deliver_foreign();
    if (action == 4 && chance(20)) set_weather();
    if (!write->writing) continue;
    if (action > 4 && action < 9) write_some(write);
    if (action == 9) check_answers(write);
    if (action == 10) report(write, below(6));
    if (action == 11 && chance(10)) free_write(write);
  }
  bool delivers_first = chance(50);
  full_percent = delivers_first ? 0 : full_percent;
  for (int i = 0; delivers_first && i < count; i++)
    if (writes[i].writing) write_some(&writes[i]);
  if (delivers_first) deliver_some(in_flight_count, failure_percent);
  for (int i = 0; i < count; i++) {
    if (!writes[i].writing) continue;
    check_answers(&writes[i]);
    if (delivers_first) {
      report(&writes[i], writes[i].rows + 1);
      check_answers(&writes[i]);
      CHECK(count_of(&writes[i], FAILED) == 0 && count_of(&writes[i], SENT) == 0);
    }
    free_write(&writes[i]);
  }
  CHECK(live_arrays == 0);
  deliver_some(in_flight_count, failure_percent);
  allocations_left = -1;
  for (int i = 0; i < count; i++) end_write(&writes[i]);
  CHECK(allocated == 0 && live_messages == 0 && live_headers == 0);
}
