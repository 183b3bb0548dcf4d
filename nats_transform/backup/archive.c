/* Entries of a stream archive. Source: nats-server `server/archive/archive.go`. */

#include "backup.h"

#ifndef SOURCE_DIGEST
#error "compile with -DSOURCE_DIGEST=\"...\", see kernel/build.py"
#endif

/* Keep in step with archive.py. */
enum { NAME_AT, NAME_SIZE, TIME, SEQUENCE, HEADER_SIZE, DATA_SIZE, FIELDS };
enum { LONGEST_NAME = 1 << 20 }; /* as the server reads them */

/* The digest of the source files that this library was made from. */
EXPORTED const char *nats_source(void) { return SOURCE_DIGEST; }

/* Reads a number: 1 if there is one, 0 if it is cut off, BROKEN_ENTRY if it has over 64 bits. */
static int64_t read_number(const uint8_t *in, int64_t size, int64_t *at, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < 10; i++) {
        if (*at >= size) return 0;
        const uint8_t byte = in[(*at)++];
        if (i == 9 && byte > 1) return BROKEN_ENTRY;
        *number |= (uint64_t)(byte & 127) << (7 * i);
        if (byte < 128) return 1;
    }
    return BROKEN_ENTRY;
}

/* Finds the whole entries at the start of `in`: six numbers for each, as above.

   Up to `most` entries are found. An entry of more than `largest` bytes is a fault. `consumed` is
   where the first entry starts that is not whole, or has a fault. Returns how many entries there
   are; or a fault, if it is in the first of them. */
EXPORTED int64_t nats_archive_scan(const uint8_t *in, int64_t size, int64_t most, int64_t largest,
                                   int64_t *entries, int64_t *consumed)
{
    int64_t at = 0, count = 0;
    for (*consumed = 0; count < most && at < size; count++, *consumed = at) {
        uint64_t numbers[5]; /* name size, time, sequence, header size, data size */
        for (int i = 0; i < 5; i++) {
            int64_t found = read_number(in, size, &at, &numbers[i]);
            if (found == 0) return count;
            if (found < 0) return count ? count : found;
        }
        if (numbers[0] > LONGEST_NAME) return count ? count : LONG_NAME;
        if (numbers[2] > INT64_MAX) return count ? count : LARGE_SEQUENCE;
        if (numbers[3] > (uint64_t)largest || numbers[4] > (uint64_t)largest - numbers[3])
            return count ? count : LARGE_ENTRY;
        const int64_t whole = (int64_t)(numbers[0] + numbers[3] + numbers[4]);
        if (whole > size - at) return count;
        int64_t *entry = entries + count * FIELDS;
        entry[NAME_AT] = at;
        entry[NAME_SIZE] = (int64_t)numbers[0];
        entry[TIME] = (int64_t)(numbers[1] >> 1) ^ -(int64_t)(numbers[1] & 1); /* zig-zag */
        entry[SEQUENCE] = (int64_t)numbers[2];
        entry[HEADER_SIZE] = (int64_t)numbers[3];
        entry[DATA_SIZE] = (int64_t)numbers[4];
        at += whole;
    }
    return count;
}

/* Puts pieces of `in` one behind the other. */
EXPORTED void nats_gather(const uint8_t *in, const int64_t *starts, const int64_t *sizes,
                          int64_t count, uint8_t *out)
{
    for (int64_t i = 0; i < count; out += sizes[i++])
        memcpy(out, in + starts[i], (size_t)sizes[i]);
}

static uint8_t *put_number(uint8_t *out, uint64_t number)
{
    for (; number > 127; number >>= 7) *out++ = (uint8_t)(number | 128);
    *out++ = (uint8_t)number;
    return out;
}

/* A column of Arrow: text i is at offsets[i] up to offsets[i + 1]. */
typedef struct { const int32_t *offsets; const uint8_t *bytes; } column;

static uint64_t size_at(const column *texts, int64_t i)
{
    return (uint64_t)(texts->offsets[i + 1] - texts->offsets[i]);
}

/* Writes messages as entries: subject, header block and payload are three columns.

   There must be room for all texts and for 44 bytes an entry more: four numbers of up to 10 bytes,
   and the size of a name of up to 4. Returns how many bytes were written. */
EXPORTED int64_t nats_archive_write(const column *columns, const int64_t *times,
                                    const int64_t *sequences, int64_t count, uint8_t *out)
{
    uint8_t *const start = out;
    for (int64_t i = 0; i < count; i++) {
        out = put_number(out, size_at(&columns[0], i));
        out = put_number(out, (uint64_t)times[i] << 1 ^ (uint64_t)(times[i] >> 63));
        out = put_number(out, (uint64_t)sequences[i]);
        out = put_number(out, size_at(&columns[1], i));
        out = put_number(out, size_at(&columns[2], i));
        for (int c = 0; c < 3; c++) {
            memcpy(out, columns[c].bytes + columns[c].offsets[i], size_at(&columns[c], i));
            out += size_at(&columns[c], i);
        }
    }
    return out - start;
}
