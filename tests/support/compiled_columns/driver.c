// Tests compiled_columns.c with random records, against a librdkafka that is simulated here.
//
//   driver reading|writing|threads FIRST COUNT
//
// runs one iteration per seed and prints each seed before it begins: the last one printed is the one that fails, and
// `driver MODE SEED 1` replays it. What lies outside of a buffer is AddressSanitizer's to see, so each buffer here is a
// block of its own and of its exact size.

#include "threads.h"

int main(int count, char **arguments) {
  static const struct functions FUNCTIONS = {
      consume_batch_queue, message_timestamp, message_headers, header_get_all, message_destroy, headers_new, header_add,
      headers_destroy, topic_new, topic_destroy, last_error, producev, conf_interceptor_add_on_new,
      interceptor_add_on_acknowledgement};
  static const struct {
    const char *name;
    void (*run)(void);
  } MODES[] = {{"reading", try_reads}, {"writing", try_writes}, {"threads", try_threads}};
  CHECK(count == 4);
  wasmline_bind(&FUNCTIONS);
  CHECK(conf_init(&configuration, NULL, NULL, 0) == 0 && note_new(&client, NULL, NULL, NULL, 0) == 0);
  uint64_t first = strtoull(arguments[2], NULL, 10), seeds = strtoull(arguments[3], NULL, 10);
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int mode = 0; mode < 3; mode++) {
    if (strcmp(MODES[mode].name, arguments[1])) continue;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
      printf("%s %llu\n", arguments[1], (unsigned long long)seed);
      random_state = seed;
      MODES[mode].run();
    }
    free(held), free(in_flight);
    return 0;
  }
  CHECK(!"a known mode");
}
