// librdkafka's producer, and what is known of the outputs that are written to it.

#pragma once

#include "simulated_messages.h"

enum { ERROR_CODES = 40, OUTPUTS = 4, MAX_WRITES = 3, NO_ROW = -1 };

struct topic {
  const char *name;
};

struct write {  // the outputs of a call, and what is known of them
  struct writing *writing;
  struct record *records;
  int64_t rows, next;
  int outputs;  // topics
  const char **names;
  void **handles;
  enum { UNANSWERED, SENT, ANSWERED, FAILED, REPORTED } *states;
  int *codes;
  int64_t arrays;  // live ones before it
};

struct sent {
  struct delivered *message;
  struct write *write;
  int64_t row;
};

static char client, configuration;
static on_new *note_new;
static on_acknowledgement *acknowledge;
static struct write *writer;  // whose outputs are being written
static struct topic *live_topics[OUTPUTS];
static int topic_failures, full_percent, error_percent, refusal_percent, last_code;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards all of these, and the states of the writes
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct sent *in_flight;
static int64_t in_flight_count, in_flight_room, answers_begun, answers_done;
static bool is_over;

static int conf_interceptor_add_on_new(void *conf, const char *name, on_new *added, void *opaque) {
  CHECK(conf == &configuration && !strcmp(name, "wasmline") && !opaque);
  note_new = added;
  return 0;
}

static int interceptor_add_on_acknowledgement(void *of, const char *name, on_acknowledgement *added, void *opaque) {
  CHECK(of == &client && !strcmp(name, "wasmline") && !opaque);
  acknowledge = added;
  return 0;
}

static void set_answer(struct write *write, int64_t row, int code) {
  pthread_mutex_lock(&lock);
  CHECK(write->states[row] == UNANSWERED || write->states[row] == SENT);
  write->states[row] = code ? FAILED : ANSWERED;
  write->codes[row] = code;
  answers_begun++;
  pthread_mutex_unlock(&lock);
}

static void finish_answer(void) {
  pthread_mutex_lock(&lock);
  answers_done++;
  pthread_mutex_unlock(&lock);
}

static int random_code(void) { return chance(50) ? -1 - (int)below(ERROR_CODES) : 1 + (int)below(ERROR_CODES); }

static void *topic_new(void *of, const char *name, void *conf) {
  CHECK(of == &client && !conf && writer && writer->next < writer->rows);
  CHECK(name == writer->names[writer->records[writer->next].topic]);
  if (chance(topic_failures)) {
    set_answer(writer, writer->next++, last_code = random_code());
    finish_answer();
    return NULL;
  }
  int number = writer->records[writer->next].topic;
  CHECK(!live_topics[number]);
  live_topics[number] = block_of(sizeof(struct topic));
  live_topics[number]->name = name;
  return live_topics[number];
}

static int last_error(void) { return last_code; }

static void topic_destroy(void *topic) {
  for (int i = 0; i < OUTPUTS; i++)
    if (live_topics[i] == topic) live_topics[i] = NULL;
  free(topic);
}

static void *headers_new(size_t count) {
  CHECK(count > 0);
  struct headers *headers = block_of(sizeof(struct headers));
  *headers = (struct headers){0, block_of(0)};
  live_headers++;
  return headers;
}

static int header_add(void *to, const char *name, ssize_t name_size, const void *value, ssize_t size) {
  struct headers *headers = to;
  CHECK(name && name_size >= 0 && size >= 0);
  headers->pairs = realloc(headers->pairs, (headers->count + 1) * sizeof(struct pair));
  CHECK(headers->pairs);
  headers->pairs[headers->count].name = text_of(name, (size_t)name_size, 1);
  headers->pairs[headers->count++].value = text_of(value, (size_t)size, 0);
  return 0;
}

static void check_sent(const struct record *record, const struct message *message, const struct headers *headers,
                       int64_t time) {
  CHECK(is_same(record->key, message->key, message->key_size));
  CHECK(is_same(record->value, message->value, message->value_size));
  CHECK(record->time == time && record->headers.count == (headers ? headers->count : 0));
  for (int i = 0; headers && i < headers->count; i++) {
    const struct pair *pair = &headers->pairs[i];
    CHECK(is_same(record->headers.pairs[i].name, pair->name.data, pair->name.size));
    CHECK(is_same(record->headers.pairs[i].value, pair->value.data, pair->value.size));
  }
}

static int producev(void *of, ...) {
  struct message message = {0};
  struct headers *headers = NULL;
  int64_t time = 0;
  int flags = 0, seen = 0, tag;
  va_list arguments;
  va_start(arguments, of);
  while ((tag = va_arg(arguments, int)) != END) {
    CHECK(!(seen & 1 << tag));
    seen |= 1 << tag;
    switch (tag) {
      case RKT: message.topic = va_arg(arguments, void *); break;
      case PARTITION: message.partition = va_arg(arguments, int32_t); break;
      case VALUE: message.value = va_arg(arguments, void *), message.value_size = va_arg(arguments, size_t); break;
      case KEY: message.key = va_arg(arguments, void *), message.key_size = va_arg(arguments, size_t); break;
      case OPAQUE: message.opaque = va_arg(arguments, void *); break;
      case FLAGS: flags = va_arg(arguments, int); break;
      case TIMESTAMP: time = va_arg(arguments, int64_t); break;
      case HEADERS: headers = va_arg(arguments, struct headers *); break;
      default: CHECK(!"a known tag");
    }
  }
  va_end(arguments);
  CHECK(of == &client && writer && writer->next < writer->rows);
  int64_t row = writer->next;
  const struct record *record = &writer->records[row];
  CHECK(flags == COPY && message.partition == ANY_PARTITION && (uintptr_t)message.opaque & 1);
  CHECK(message.topic && message.topic == live_topics[record->topic]);
  CHECK(((struct topic *)message.topic)->name == writer->names[record->topic]);
  check_sent(record, &message, headers, time);
  if (chance(full_percent)) return QUEUE_FULL;
  writer->next++;
  if (chance(error_percent)) {
    int code = random_code();
    set_answer(writer, row, code);
    finish_answer();
    return code;
  }
  struct delivered *made = block_of(sizeof(struct delivered));
  struct text key = text_of(message.key, message.key_size, 0), value = text_of(message.value, message.value_size, 0);
  *made = (struct delivered){.message = message, .headers = headers, .time = time};
  made->message.topic = &topic_handles[record->topic], made->message.partition = record->partition;
  made->message.offset = record->offset, made->message.key = key.data, made->message.value = value.data;
  live_messages++;
  if (chance(refusal_percent)) {
    int code = made->message.error = random_code();
    set_answer(writer, row, code);
    CHECK(acknowledge(&client, &made->message, NULL) == 0);
    CHECK(!made->message.opaque && made->message.error == code);
    finish_answer();
    made->headers = NULL;
    message_destroy(&made->message);
    return code;
  }
  pthread_mutex_lock(&lock);
  writer->states[row] = SENT;
  if (in_flight_count == in_flight_room)
    CHECK((in_flight = realloc(in_flight, (in_flight_room = in_flight_room * 2 + 8) * sizeof(struct sent))));
  in_flight[in_flight_count++] = (struct sent){made, writer, row};
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  return 0;
}

static void deliver(struct sent *sent, int failure_percent) {
  int code = sent->message->message.error = chance(failure_percent) ? random_code() : 0;
  set_answer(sent->write, sent->row, code);
  CHECK(acknowledge(&client, &sent->message->message, NULL) == 0);
  CHECK(!sent->message->message.opaque && sent->message->message.error == code);
  finish_answer();
  message_destroy(&sent->message->message);
}

static bool take_sent(struct sent *sent) {  // the lock is held
  if (!in_flight_count) return false;
  int64_t number = chance(50) ? 0 : below(in_flight_count);
  *sent = in_flight[number];
  memmove(&in_flight[number], &in_flight[number + 1], (--in_flight_count - number) * sizeof(struct sent));
  return true;
}

static void deliver_some(int64_t count, int failure_percent) {
  struct sent sent;
  while (count-- > 0 && take_sent(&sent)) deliver(&sent, failure_percent);
}

static void deliver_foreign(void) {  // messages of the client itself
  int64_t object = 0;
  struct message message = {.opaque = chance(50) ? &object : NULL}, before = message;
  CHECK(acknowledge(&client, &message, NULL) == 0);
  CHECK(memcmp(&message, &before, sizeof(message)) == 0);
}
