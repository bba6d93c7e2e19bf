// librdkafka's messages and headers.

#pragma once

#include "random_records.h"

enum { NO_HEADERS = -156, TOPICS = 5 };

struct delivered {  // a message
  struct message message;
  struct headers *headers;  // or NULL
  int64_t time;
  struct record *record;  // one that is read
};

static char topic_handles[TOPICS];
static atomic_int live_messages, live_headers;

static struct delivered *message_of(struct record *record) {
  struct delivered *made = block_of(sizeof(struct delivered));
  struct text key = text_of(record->key.data, record->key.size, 0);
  struct text value = text_of(record->value.data, record->value.size, 0);
  bool has_topic = !record->error || record->topic;
  *made = (struct delivered){.time = record->time, .record = record};
  made->message = (struct message){.error = record->error, .topic = has_topic ? &topic_handles[record->topic] : NULL,
                                   .partition = record->partition, .value = value.data, .value_size = value.size,
                                   .key = key.data, .key_size = key.size, .offset = record->offset};
  if (record->headers.count || chance(10)) {
    made->headers = block_of(sizeof(struct headers));
    *made->headers = copy_of(&record->headers);
    live_headers++;
  }
  live_messages++;
  return made;
}

static void headers_destroy(void *headers) {
  live_headers--;
  free_headers(headers);
  free(headers);
}

static void message_destroy(struct message *message) {
  struct delivered *destroyed = (struct delivered *)message;
  if (destroyed->record) {
    CHECK(destroyed->record->state == READ);
    destroyed->record->state = DESTROYED;
  }
  if (destroyed->headers) headers_destroy(destroyed->headers);
  free(message->key), free(message->value);
  free(destroyed);
  live_messages--;
}

static int64_t message_timestamp(const struct message *message, int *kind) {
  *kind = 1;
  return ((const struct delivered *)message)->time;
}

static int message_headers(const struct message *message, void **headers) {
  struct headers *found = ((const struct delivered *)message)->headers;
  *headers = found ? (void *)found : (void *)1;
  return found ? 0 : NO_HEADERS;
}

static int header_get_all(const void *headers, size_t index, const char **name, const void **value, size_t *size) {
  const struct headers *all = headers;
  if (index >= (size_t)all->count) return NO_HEADERS;
  *name = all->pairs[index].name.data;
  *value = all->pairs[index].value.data, *size = all->pairs[index].value.size;
  return 0;
}
