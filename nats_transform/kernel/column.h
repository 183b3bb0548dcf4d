/* Columns as Arrow lays them out in memory, and the hash that Spark calls xxhash64. */

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Arrow's memory is little-endian here, and this file reads it as it stands"
#endif

#define EXPORTED __attribute__((visibility("default")))

/* What a function returns instead of a count of rows. Keep in step with library.py. */
enum { BROKEN_ARRAY = -1, SUBJECT_TOO_LONG = -2, RESULT_TOO_LARGE = -3 };

/* The layouts of a column. Keep in step with columns.py. */
enum layout { NULLS, INT32, INT64, DOUBLE, BYTES, LIST, STRUCT, DICTIONARY };

typedef struct column {
    int32_t layout;
    int32_t is_wide;        /* whether the offsets of BYTES or a LIST have 64 bits */
    int64_t first;          /* where the values start in the buffers: a slice starts late */
    int64_t length;         /* how many values there are */
    const uint8_t *valid;   /* one bit a value; NULL if no value is missing */
    const void *values;     /* numbers or offsets */
    const uint8_t *bytes;   /* of BYTES */
    int64_t size;           /* how many bytes may be read there */
    const struct column *children; /* elements of a LIST, fields of a STRUCT, or the indexes of a
                                      DICTIONARY and its values */
    int64_t child_count;
} column;

typedef struct { const uint8_t *at; int64_t size; } text;

/* Where a value is in the buffers. A column of one value has it in every row. */
static inline int64_t place_of(const column *c, int64_t i)
{
    return c->first + (c->length == 1 ? 0 : i);
}

static inline int64_t number_at(const column *c, int64_t i)
{
    if (c->layout == INT32) return ((const int32_t *)c->values)[place_of(c, i)];
    return ((const int64_t *)c->values)[place_of(c, i)];
}

/* The place of a value in a dictionary; -1 if there is none, so the array is broken. */
static inline int64_t place_in_dictionary(const column *c, int64_t i)
{
    int64_t place = number_at(&c->children[0], i);
    return 0 <= place && place < c->children[1].length ? place : -1;
}

static inline bool is_valid(const column *c, int64_t i)
{
    if (c->layout == DICTIONARY) {
        if (!is_valid(&c->children[0], i)) return false;
        i = place_in_dictionary(c, i);
        return i < 0 || is_valid(&c->children[1], i);
    }
    i = place_of(c, i);
    return c->layout != NULLS && (!c->valid || c->valid[i >> 3] >> (i & 7) & 1);
}

/* Where a value's bytes or elements are. False: not within `size`, so the array is broken. */
static inline bool range_at(const column *c, int64_t i, int64_t size, int64_t *start, int64_t *end)
{
    const int64_t *wide = c->values;
    const int32_t *narrow = c->values;
    i = place_of(c, i);
    *start = c->is_wide ? wide[i] : narrow[i];
    *end = c->is_wide ? wide[i + 1] : narrow[i + 1];
    return 0 <= *start && *start <= *end && *end <= size;
}

/* Whether there is a value, of BYTES or a DICTIONARY of them, and which bytes it has. */
static inline bool text_at(const column *c, int64_t i, text *found, bool *is_broken)
{
    if (!is_valid(c, i)) return false;
    if (c->layout == DICTIONARY) {
        i = place_in_dictionary(c, i);
        c = &c->children[1];
    }
    int64_t start, end;
    if (i < 0 || !range_at(c, i, c->size, &start, &end)) return !(*is_broken = true);
    *found = (text){c->bytes + start, end - start};
    return true;
}

/* xxHash64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). */

#define PRIME_1 0x9E3779B185EBCA87u
#define PRIME_2 0xC2B2AE3D27D4EB4Fu
#define PRIME_3 0x165667B19E3779F9u
#define PRIME_4 0x85EBCA77C2B2AE63u
#define PRIME_5 0x27D4EB2F165667C5u

static inline uint64_t rotated(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline uint64_t word_at(const uint8_t *at, size_t size)
{
    uint64_t word = 0;
    memcpy(&word, at, size);
    return word;
}

static inline uint64_t round64(uint64_t lane, uint64_t input)
{
    return rotated(lane + input * PRIME_2, 31) * PRIME_1;
}

static inline uint64_t hash_text(text t, uint64_t seed)
{
    const uint8_t *at = t.at, *end = at + t.size;
    uint64_t hash = seed + PRIME_5;
    if (t.size >= 32) {
        uint64_t lanes[4] = {seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1};
        for (; end - at >= 32; at += 32)
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] = round64(lanes[lane], word_at(at + 8 * lane, 8));
        hash = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12)
            + rotated(lanes[3], 18);
        for (int lane = 0; lane < 4; lane++)
            hash = (hash ^ round64(0, lanes[lane])) * PRIME_1 + PRIME_4;
    }
    hash += (uint64_t)t.size;
    for (; end - at >= 8; at += 8)
        hash = rotated(hash ^ round64(0, word_at(at, 8)), 27) * PRIME_1 + PRIME_4;
    for (; end - at >= 4; at += 4)
        hash = rotated(hash ^ word_at(at, 4) * PRIME_1, 23) * PRIME_2 + PRIME_3;
    for (; at < end; at++) hash = rotated(hash ^ *at * PRIME_5, 11) * PRIME_1;
    hash = (hash ^ hash >> 33) * PRIME_2;
    hash = (hash ^ hash >> 29) * PRIME_3;
    return hash ^ hash >> 32;
}

/* Spark hashes a number as its 8 or 4 bytes, and a row by handing each hash on as a seed. */
static inline uint64_t hash_number(int64_t value, int64_t size, uint64_t seed)
{
    return hash_text((text){(const uint8_t *)&value, size}, seed);
}
