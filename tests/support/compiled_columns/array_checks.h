// Reads arrays by https://arrow.apache.org/docs/format/CDataInterface.html and compares them with records.

#pragma once

#include "random_records.h"

enum kind { BINARY, LIST, STRUCT, INT32, INT64, BATCH };

static enum kind kind_of_child(enum kind kind, int64_t child) {
  static const enum kind OF_BATCH[] = {BINARY, BINARY, LIST, INT64, INT32, INT64};
  return kind == BATCH ? OF_BATCH[child] : kind == LIST ? STRUCT : BINARY;
}

static bool is_valid(const struct ArrowArray *array, int64_t row) {
  const uint8_t *bits = array->buffers[0];
  row += array->offset;
  return !bits || bits[row / 8] & 1 << row % 8;
}

static int32_t end_at(const struct ArrowArray *array, int64_t row) {
  return ((const int32_t *)array->buffers[1])[array->offset + row];
}

static struct text text_at(const struct ArrowArray *array, int64_t row) {
  if (!is_valid(array, row)) return (struct text){NULL, 0};
  int32_t begin = end_at(array, row);
  return (struct text){(char *)array->buffers[2] + begin, (size_t)(end_at(array, row + 1) - begin)};
}

static int64_t number_at(const struct ArrowArray *array, int64_t row, enum kind kind) {
  CHECK(is_valid(array, row));
  if (kind == INT32) return ((const int32_t *)array->buffers[1])[array->offset + row];
  return ((const int64_t *)array->buffers[1])[array->offset + row];
}

struct span {
  uintptr_t begin, end;
};

static void add_span(struct span *spans, int *count, const void *begin, int64_t bytes) {
  struct span added = {(uintptr_t)begin, (uintptr_t)begin + (uintptr_t)bytes};
  if (!begin || !bytes) return;
  CHECK(added.begin % 8 == 0);
  for (int i = 0; i < *count; i++) CHECK(added.end <= spans[i].begin || spans[i].end <= added.begin);
  spans[(*count)++] = added;
}

// Checks what the interface demands of an array and its children, and that no two buffers overlap.
static void check_layout(const struct ArrowArray *array, enum kind kind, int64_t length, struct span *spans,
                         int *count) {
  static const int BUFFERS[] = {3, 2, 1, 2, 2, 1}, CHILDREN[] = {0, 1, 2, 0, 0, 6};
  int64_t nulls = 0, physical = array->offset + array->length;
  CHECK(array->release && !array->dictionary);
  CHECK(array->length >= length && array->offset >= 0);
  CHECK(array->n_buffers == BUFFERS[kind] && array->n_children == CHILDREN[kind] && array->buffers);
  for (int64_t i = 0; i < array->length; i++) nulls += !is_valid(array, i);
  CHECK(array->null_count == nulls || array->null_count == -1);
  add_span(spans, count, array->buffers[0], (physical + 7) / 8);
  if (kind == BINARY || kind == LIST) {
    CHECK(array->buffers[1] && end_at(array, 0) >= 0);
    for (int64_t i = 0; i < array->length; i++) CHECK(end_at(array, i) <= end_at(array, i + 1));
    add_span(spans, count, array->buffers[1], (physical + 1) * 4);
    CHECK(kind == LIST || array->buffers[2] || !end_at(array, array->length));
    if (kind == BINARY) add_span(spans, count, array->buffers[2], end_at(array, array->length));
  }
  if (kind == INT32 || kind == INT64) add_span(spans, count, array->buffers[1], physical * (kind == INT32 ? 4 : 8));
  for (int64_t i = 0; i < array->n_children; i++) {
    int64_t least = kind == LIST ? end_at(array, array->length) : physical;
    check_layout(array->children[i], kind_of_child(kind, i), least, spans, count);
  }
}

static void check_row(const struct ArrowArray *batch, int64_t row, const struct record *record) {
  const struct ArrowArray *lists = batch->children[2], *pairs = lists->children[0];
  struct text key = text_at(batch->children[0], row), value = text_at(batch->children[1], row);
  CHECK(is_same(record->key, key.data, key.size));
  CHECK(is_same(record->value, value.data, value.size));
  CHECK(number_at(batch->children[3], row, INT64) == record->time);
  CHECK(number_at(batch->children[4], row, INT32) == record->partition);
  CHECK(number_at(batch->children[5], row, INT64) == record->offset);
  CHECK(is_valid(lists, row) == (record->headers.count > 0));
  CHECK(end_at(lists, row + 1) - end_at(lists, row) == record->headers.count);
  for (int i = 0; i < record->headers.count; i++) {
    int64_t place = end_at(lists, row) + i + pairs->offset;
    struct text name = text_at(pairs->children[0], place), header = text_at(pairs->children[1], place);
    CHECK(is_same(record->headers.pairs[i].name, name.data, name.size));
    CHECK(is_same(record->headers.pairs[i].value, header.data, header.size));
  }
}

static uint64_t hash(uint64_t seed, const void *data, size_t size) {  // FNV-1a
  for (size_t i = 0; i < size; i++) seed = (seed ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
  return seed;
}

// Reads all that an array has, without the children that were taken from it.
static uint64_t digest(const struct ArrowArray *array, enum kind kind) {
  uint64_t sum = hash(kind, &array->length, sizeof(array->length));
  for (int64_t i = 0; i < array->length; i++) {
    bool valid = is_valid(array, i);
    sum = hash(sum, &valid, sizeof(valid));
    struct text text = kind == BINARY ? text_at(array, i) : (struct text){NULL, 0};
    if (text.data) sum = hash(sum, text.data, text.size);
    int64_t number = kind == LIST ? end_at(array, i + 1) : 0;
    if (kind == INT32 || kind == INT64) number = number_at(array, i, kind);
    sum = hash(sum, &number, sizeof(number));
  }
  for (int64_t i = 0; i < array->n_children; i++)
    if (array->children[i]->release)
      sum = hash(sum ^ digest(array->children[i], kind_of_child(kind, i)), &i, sizeof(i));
  return sum;
}
