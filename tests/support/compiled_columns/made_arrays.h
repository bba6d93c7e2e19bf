// Makes batches of TIMED_OUTPUT_SCHEMA, in all the forms that an array may have.

#pragma once

#include "random_records.h"

static atomic_int live_arrays;

static void release_made(struct ArrowArray *array) {
  for (int64_t i = 0; i < array->n_children; i++) {
    if (array->children[i]->release) array->children[i]->release(array->children[i]);
    free(array->children[i]);
  }
  for (int64_t i = 0; i < array->n_buffers; i++) free((void *)array->buffers[i]);
  free(array->buffers), free(array->children);
  array->release = NULL;
  live_arrays--;
}

static struct ArrowArray *made_array(int64_t length, int64_t offset, int buffers, int children) {
  struct ArrowArray *array = block_of(sizeof(struct ArrowArray));
  *array = (struct ArrowArray){.length = length, .offset = offset, .n_buffers = buffers, .n_children = children,
                               .release = release_made};
  array->buffers = block_of(buffers * sizeof(void *));
  memset(array->buffers, 0, buffers * sizeof(void *));
  if (children) array->children = block_of(children * sizeof(void *));
  live_arrays++;
  return array;
}

static int64_t random_offset(void) { return chance(40) ? 0 : below(chance(80) ? 10 : 70); }

// valid: of the rows behind the offset; NULL: all are.
static void set_validity(struct ArrowArray *array, const bool *valid) {
  int64_t nulls = 0, physical = array->offset + array->length;
  for (int64_t i = 0; valid && i < array->length; i++) nulls += !valid[i];
  array->null_count = chance(50) ? nulls : -1;
  if (!nulls && chance(50)) return;
  uint8_t *bits = block_of((physical + 7) / 8);
  for (int64_t i = 0; i < (physical + 7) / 8; i++) bits[i] = (uint8_t)random_bits();
  for (int64_t i = 0; i < array->length; i++) {
    int64_t bit = array->offset + i;
    bits[bit / 8] = (uint8_t)(bits[bit / 8] & ~(1 << bit % 8));
    if (!valid || valid[i]) bits[bit / 8] = (uint8_t)(bits[bit / 8] | 1 << bit % 8);
  }
  array->buffers[0] = bits;
}

static struct ArrowArray *binary_array(const struct text *texts, int64_t length) {
  struct ArrowArray *array = made_array(length, random_offset(), 3, 0);
  int64_t physical = array->offset + length, total = chance(70) ? 0 : below(9);
  int32_t *ends = block_of((physical + 1) * sizeof(int32_t));
  bool *valid = block_of(length);
  ends[0] = (int32_t)total;
  for (int64_t i = 0; i < physical; i++) {
    const struct text *text = i < array->offset ? NULL : &texts[i - array->offset];
    if (text) valid[i - array->offset] = text->data;
    total += text && text->data ? (int64_t)text->size : chance(30) ? below(7) : 0;  // a null may have bytes
    ends[i + 1] = (int32_t)total;
  }
  char *data = total || chance(50) ? block_of(total) : NULL;
  for (int64_t i = 0; i < total; i++) data[i] = (char)random_bits();
  for (int64_t i = 0; i < length; i++)
    if (texts[i].data && texts[i].size) memcpy(data + ends[array->offset + i], texts[i].data, texts[i].size);
  set_validity(array, valid);
  free(valid);
  if (!physical && chance(50)) free(ends), ends = NULL;
  array->buffers[1] = ends, array->buffers[2] = data;
  return array;
}

static struct ArrowArray *numbers_array(const int64_t *numbers, int64_t length, size_t size) {
  struct ArrowArray *array = made_array(length, random_offset(), 2, 0);
  char *data = block_of((array->offset + length) * size);
  for (int64_t i = 0; i < array->offset; i++) memset(data + i * size, 0x7f, size);
  for (int64_t i = 0; i < length; i++) {
    int32_t narrow = (int32_t)numbers[i];
    memcpy(data + (array->offset + i) * size, size == 4 ? (const void *)&narrow : &numbers[i], size);
  }
  set_validity(array, NULL);
  array->buffers[1] = data;
  return array;
}

static struct ArrowArray *headers_array(const struct record *records, int64_t length) {
  struct ArrowArray *lists = made_array(length, random_offset(), 2, 1), *structs = made_array(0, random_offset(), 1, 2);
  int64_t physical = lists->offset + length, room = structs->offset + physical * 6 + 8;
  int64_t used = structs->offset + below(4);
  struct text *names = block_of(room * sizeof(struct text)), *values = block_of(room * sizeof(struct text));
  int32_t *ends = block_of((physical + 1) * sizeof(int32_t));
  bool *valid = block_of(length);
  for (int64_t i = 0; i < room; i++) names[i] = values[i] = (struct text){"unused", 6};
  ends[0] = (int32_t)(used - structs->offset);
  for (int64_t i = 0; i < physical; i++) {
    const struct record *record = i < lists->offset ? NULL : &records[i - lists->offset];
    bool is_empty = record && !record->headers.count && chance(50);
    if (record) valid[i - lists->offset] = record->headers.count || is_empty;
    for (int header = 0; record && header < record->headers.count; header++, used++)
      names[used] = record->headers.pairs[header].name, values[used] = record->headers.pairs[header].value;
    if (!is_empty && !(record && record->headers.count)) used += chance(30) ? below(3) : 0;  // a null may have pairs
    ends[i + 1] = (int32_t)(used - structs->offset);
  }
  structs->length = used - structs->offset + below(3);
  set_validity(structs, NULL);
  structs->children[0] = binary_array(names, structs->offset + structs->length);
  structs->children[1] = binary_array(values, structs->offset + structs->length);
  set_validity(lists, valid);
  free(names), free(values), free(valid);
  if (!physical && chance(50)) free(ends), ends = NULL;
  lists->buffers[1] = ends;
  lists->children[0] = structs;
  return lists;
}

// A batch of TIMED_OUTPUT_SCHEMA. The topic of a record is its output.
static struct ArrowArray output_batch(const struct record *records, int64_t length) {
  struct text *texts = block_of(length * sizeof(struct text));
  int64_t *numbers = block_of(length * sizeof(int64_t));
  struct ArrowArray *batch = made_array(length, 0, 1, 6), made;
  for (int64_t i = 0; i < length; i++) numbers[i] = i;
  batch->children[0] = numbers_array(numbers, length, 4);
  for (int64_t i = 0; i < length; i++) numbers[i] = records[i].topic;
  batch->children[1] = numbers_array(numbers, length, 4);
  for (int64_t i = 0; i < length; i++) texts[i] = records[i].key;
  batch->children[2] = binary_array(texts, length);
  for (int64_t i = 0; i < length; i++) texts[i] = records[i].value;
  batch->children[3] = binary_array(texts, length);
  batch->children[4] = headers_array(records, length);
  for (int64_t i = 0; i < length; i++) numbers[i] = records[i].time;
  batch->children[5] = numbers_array(numbers, length, 8);
  free(texts), free(numbers);
  made = *batch;
  free(batch);
  return made;
}
