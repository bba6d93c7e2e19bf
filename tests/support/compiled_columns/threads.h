// Tests acknowledgements beside writes, and releases of a batch's arrays in two threads.

#pragma once

#include "writes.h"

static void *acknowledge_all(void *seed) {
  struct sent sent;
  random_state = *(uint64_t *)seed;
  int failure_percent = chance(30) ? 0 : (int)below(100);
  for (;;) {
    pthread_mutex_lock(&lock);
    while (!in_flight_count && !is_over) pthread_cond_wait(&changed, &lock);
    bool found = take_sent(&sent);
    pthread_mutex_unlock(&lock);
    if (!found) return NULL;
    deliver(&sent, failure_percent);
  }
}

static void count_answers(int64_t *begun, int64_t *done) {
  pthread_mutex_lock(&lock);
  *begun = answers_begun, *done = answers_done;
  pthread_mutex_unlock(&lock);
}

// Compares what is reported with the answers that were passed on before, and until, it was; `before`: those of earlier
// writes. Returns whether all are answered.
static bool check_counts(const struct write *write, int64_t before) {
  int64_t begun, done, later, failures, unanswered;
  count_answers(&begun, &done);
  unanswered = wasmline_unanswered(write->writing, &failures);
  count_answers(&later, &begun);
  CHECK(unanswered <= write->rows - (done - before) && unanswered >= write->rows - (later - before));
  pthread_mutex_lock(&lock);
  CHECK(failures <= count_of(write, FAILED));
  if (!unanswered) CHECK(failures == count_of(write, FAILED));
  pthread_mutex_unlock(&lock);
  return !unanswered;
}

static void write_beside_acknowledgements(void) {
  pthread_t thread;
  struct write write;
  uint64_t seed = random_bits();
  bool is_abandoned = chance(25), is_complete = false;
  int64_t before = answers_begun, steps_left = below(20);
  set_weather();
  is_over = false;
  begin_write(&write, NULL);
  CHECK(pthread_create(&thread, NULL, acknowledge_all, &seed) == 0);
  while (!is_complete && !(is_abandoned && steps_left-- <= 0)) {
    write_some(&write);
    is_complete = check_counts(&write, before);
    report(&write, below(8));
  }
  if (!is_abandoned) {
    report(&write, write.rows + 1);
    check_answers(&write);
    CHECK(count_of(&write, FAILED) == 0);
  }
  free_write(&write);
  pthread_mutex_lock(&lock);
  is_over = true;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  CHECK(pthread_join(thread, NULL) == 0);
  end_write(&write);
  CHECK(live_arrays == 0);
}

struct share {
  struct held *arrays;
  int64_t count;
};

static void *release_share(void *argument) {
  struct share *share = argument;
  for (int64_t i = 0; i < share->count; i++) release_array(&share->arrays[i]);
  return NULL;
}

// Releases the arrays of each part in two threads.
static void read_for_two_threads(void) {
  pthread_t thread;
  struct reading *reading = wasmline_reading_new(20);
  read_once(reading);
  wasmline_reading_free(reading);
  free_records(queue.records, queue.count);
  for (int64_t i = held_count - 1; i > 0; i--) {
    int64_t other = below(i + 1);
    struct held each = held[i];
    held[i] = held[other], held[other] = each;
  }
  struct share first = {held, held_count / 2}, second = {held + first.count, held_count - first.count};
  CHECK(pthread_create(&thread, NULL, release_share, &first) == 0);
  release_share(&second);
  CHECK(pthread_join(thread, NULL) == 0);
  held_count = 0;
}

static void try_threads(void) {
  part_limit = INT32_MAX, allocations_left = -1;
  write_beside_acknowledgements();
  memset(&queue, 0, sizeof(queue));
  read_for_two_threads();
  CHECK(allocated == 0 && live_messages == 0 && live_headers == 0);
}
