// Includes compiled_columns.c; its allocations are counted and fail on demand, and its INT32_MAX is a variable.

#pragma once

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);       \
      abort();                                                                        \
    }                                                                                 \
  } while (0)

static atomic_long allocated;       // blocks that it has now
static long allocations_left = -1;  // successful ones until one fails; negative: none fails
static bool has_failed;             // whether one did
static int64_t part_limit;          // bytes and headers of a part, in place of INT32_MAX

static bool is_last_allocation(void) {
  if (allocations_left < 0 || allocations_left-- > 0) return false;
  return has_failed = true;
}

static void *noted(void *block, size_t size, int byte) {
  CHECK(block);
  atomic_fetch_add(&allocated, 1);
  return memset(block, byte, size);
}

static void *failing_malloc(size_t size) { return is_last_allocation() ? NULL : noted(malloc(size), size, 0xa5); }

static void *failing_calloc(size_t count, size_t size) {
  return is_last_allocation() ? NULL : noted(malloc(count * size), count * size, 0);
}

static void noted_free(void *block) {
  if (block) atomic_fetch_sub(&allocated, 1);
  free(block);
}

#ifndef SOURCE
#define SOURCE "../../../provider/wasmline/kafka/compiled_columns.c"
#endif
#undef INT32_MAX
#define INT32_MAX part_limit
#define malloc failing_malloc
#define calloc failing_calloc
#define free noted_free
#include SOURCE
#undef malloc
#undef calloc
#undef free
#undef INT32_MAX
#define INT32_MAX 2147483647
