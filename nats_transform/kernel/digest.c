/* The digest of rows: the sum of their hashes, as nats_transform.digest describes it. */

#include "column.h"

enum { AT_ONCE = 512 }; /* rows, whose hashes fit in the first cache of a processor */

/* Of a double that is stored in these: Java knows one NaN, and Spark takes -0.0 for 0.0. */
static int64_t bits_of(int64_t stored)
{
    double value;
    memcpy(&value, &stored, sizeof value);
    return value == 0 ? 0 : value == value ? stored : 0x7FF8000000000000;
}

/* What a number or a text makes of the hash so far; a missing value changes nothing. False: the
   array is broken. A number is hashed before anybody asks whether it is missing, so that the
   processor need not guess. */
static inline bool add_simple(const column *c, int32_t layout, int64_t i, uint64_t *hash)
{
    uint64_t with = *hash;
    int64_t start, end;
    switch (layout) {
    case INT32: with = hash_number(number_at(c, i), 4, with); break;
    case INT64: with = hash_number(number_at(c, i), 8, with); break;
    case DOUBLE: with = hash_number(bits_of(number_at(c, i)), 8, with); break;
    case BYTES:
        if (!is_valid(c, i)) return true;
        if (!range_at(c, i, c->size, &start, &end)) return false;
        with = hash_text((text){c->bytes + start, end - start}, with);
    }
    *hash = is_valid(c, i) ? with : *hash;
    return true;
}

/* The same of any value: of a list what its elements make, of a struct its fields. */
static bool add_value(const column *c, int64_t i, uint64_t *hash)
{
    int64_t start, end;
    switch (c->layout) {
    case LIST:
        if (!is_valid(c, i)) return true;
        if (!range_at(c, i, c->children[0].length, &start, &end)) return false;
        for (; start < end; start++)
            if (!add_value(&c->children[0], start, hash)) return false;
        return true;
    case STRUCT:
        for (int64_t field = 0; is_valid(c, i) && field < c->child_count; field++)
            if (!add_value(&c->children[field], i, hash)) return false;
        return true;
    case DICTIONARY:
        if (!is_valid(&c->children[0], i)) return true;
        start = place_in_dictionary(c, i);
        return start >= 0 && add_value(&c->children[1], start, hash);
    default: return add_simple(c, c->layout, i, hash);
    }
}

/* How many elements a list has, which is hashed ahead of them; -1 of a missing list. */
static bool add_length(const column *c, int64_t i, uint64_t *hash)
{
    int64_t start = 0, end = -1;
    if (is_valid(c, i) && !range_at(c, i, c->children[0].length, &start, &end)) return false;
    *hash = hash_number(end - start, 4, *hash);
    return true;
}

#define EACH_ROW(is_added)                                                                         \
    for (int64_t i = 0; i < rows; i++)                                                             \
        if (!(is_added)) return false;                                                             \
    return true

/* Hands the hashes of some rows, from `first` on, through a column. What is common has a loop of
   its own, in which nothing is asked that is the same for all rows. */
static bool add_column(const column *given, int64_t first, int64_t rows, uint64_t *hashes)
{
    const column c = *given; /* a copy: no write to a hash can change it */
    switch (c.layout) {
    case NULLS: return true;
    case INT32: EACH_ROW(add_simple(&c, INT32, first + i, &hashes[i]));
    case INT64: EACH_ROW(add_simple(&c, INT64, first + i, &hashes[i]));
    case BYTES: EACH_ROW(add_simple(&c, BYTES, first + i, &hashes[i]));
    case LIST: EACH_ROW(add_length(&c, first + i, &hashes[i])
                        && (!is_valid(&c, first + i) || add_value(&c, first + i, &hashes[i])));
    case DICTIONARY: {
        const column indexes = c.children[0], words = c.children[1];
        if (words.layout != BYTES) break;
        EACH_ROW(!is_valid(&indexes, first + i)
                 || ((uint64_t)number_at(&indexes, first + i) < (uint64_t)words.length
                     && add_simple(&words, BYTES, number_at(&indexes, first + i), &hashes[i])));
    }
    }
    EACH_ROW(add_value(&c, first + i, &hashes[i]));
}

/* Missing values change no hash, so a mask of the columns in which they are goes first. */
static void add_missing(const column *given, int64_t bit, int64_t first, int64_t rows, uint64_t *mask)
{
    const column c = *given;
    if (c.layout == NULLS) {
        for (int64_t i = 0; i < rows; i++) mask[i] |= (uint64_t)1 << bit;
        return;
    }
    if (c.layout == DICTIONARY && c.children[1].layout == BYTES) {
        if (!c.children[0].valid && !c.children[1].valid) return;
    } else if (c.layout != DICTIONARY && !c.valid) return;
    for (int64_t i = 0; i < rows; i++) mask[i] |= (uint64_t)!is_valid(&c, first + i) << bit;
}

/* Adds the hashes of all rows to a sum modulo 2**64. Returns 0, or BROKEN_ARRAY.

   Some rows at a time go through one column after the other: a hash waits for the column before,
   but not for those of other rows, so the processor works on several rows at once. */
EXPORTED int64_t nats_digest(const column *columns, int64_t count, int64_t rows, uint64_t *sum)
{
    uint64_t hashes[AT_ONCE];
    for (int64_t first = 0; first < rows; first += AT_ONCE) {
        int64_t many = rows - first < AT_ONCE ? rows - first : AT_ONCE;
        memset(hashes, 0, sizeof hashes);
        for (int64_t c = 0; c < count; c++) add_missing(&columns[c], c, first, many, hashes);
        for (int64_t i = 0; i < many; i++)
            hashes[i] = hash_number((int64_t)hashes[i], 8, 42); /* where Spark starts */
        for (int64_t c = 0; c < count; c++)
            if (!add_column(&columns[c], first, many, hashes)) return BROKEN_ARRAY;
        for (int64_t i = 0; i < many; i++) *sum += hashes[i];
    }
    return 0;
}
