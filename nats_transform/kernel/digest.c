/* The digest of rows: the sum of their hashes, as nats_transform.digest describes it. */

#include "column.h"

/* Of a double that is stored in these: Java knows one NaN, and Spark takes -0.0 for 0.0. */
static int64_t bits_of(int64_t stored)
{
    double value;
    memcpy(&value, &stored, sizeof value);
    return value == 0 ? 0 : value == value ? stored : 0x7FF8000000000000;
}

/* What a value makes of the hash so far: of a list its elements, of a struct its fields, and a
   missing value changes nothing. False: the array is broken. */
static bool add_value(const column *c, int64_t i, uint64_t *hash)
{
    if (!is_valid(c, i)) return true;
    int64_t start, end;
    switch (c->layout) {
    case INT32: *hash = hash_number(number_at(c, i), 4, *hash); return true;
    case INT64: *hash = hash_number(number_at(c, i), 8, *hash); return true;
    case DOUBLE: *hash = hash_number(bits_of(number_at(c, i)), 8, *hash); return true;
    case BYTES:
        if (!range_at(c, i, c->size, &start, &end)) return false;
        *hash = hash_text((text){c->bytes + start, end - start}, *hash);
        return true;
    case LIST:
        if (!range_at(c, i, c->children[0].length, &start, &end)) return false;
        for (; start < end; start++)
            if (!add_value(&c->children[0], start, hash)) return false;
        return true;
    case STRUCT:
        for (int64_t field = 0; field < c->child_count; field++)
            if (!add_value(&c->children[field], i, hash)) return false;
        return true;
    default: /* DICTIONARY */
        start = place_in_dictionary(c, i);
        return start >= 0 && add_value(&c->children[1], start, hash);
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

/* Adds the hashes of all rows to a sum modulo 2**64. Returns 0, or BROKEN_ARRAY. */
EXPORTED int64_t nats_digest(const column *columns, int64_t count, int64_t rows, uint64_t *sum)
{
    for (int64_t row = 0; row < rows; row++) {
        /* Missing values change no hash, so a mask of them goes first. */
        uint64_t missing = 0;
        for (int64_t c = 0; c < count; c++)
            missing |= (uint64_t)!is_valid(&columns[c], row) << c;
        uint64_t hash = hash_number((int64_t)missing, 8, 42); /* where Spark starts */
        for (int64_t c = 0; c < count; c++) {
            bool is_whole = columns[c].layout != LIST || add_length(&columns[c], row, &hash);
            if (!is_whole || !add_value(&columns[c], row, &hash)) return BROKEN_ARRAY;
        }
        *sum += hash;
    }
    return 0;
}
