/* S2 streams, of which the Snappy framing format is a part.

   Sources: the Snappy framing format (google/snappy, framing_format.txt) and block format
   (format_description.txt), and what S2 adds (klauspost/compress, s2/README.md "Format Extensions"):
   its own stream identifier, blocks of up to 4 MB, and a copy with offset 0, which repeats the last
   offset and has longer lengths. */

#include "backup.h"

enum { LARGEST_BLOCK = 4 << 20, LARGEST_SNAPPY_BLOCK = 1 << 16 };
enum { COMPRESSED = 0x00, PLAIN = 0x01, FIRST_SKIPPABLE = 0x80, IDENTIFIER = 0xff };
/* What is known of a stream after its identifier. */
enum { BEFORE_IDENTIFIER = 0, IS_S2 = 1, IS_SNAPPY = 2 };

static uint32_t crc_tables[8][256];

__attribute__((constructor)) static void make_crc_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        crc_tables[0][i] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t before = crc_tables[table - 1][i];
            crc_tables[table][i] = before >> 8 ^ crc_tables[0][before & 255];
        }
}

static uint64_t little_endian(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) number |= (uint64_t)at[i] << (8 * i);
    return number;
}

/* CRC-32C of some bytes, masked as the framing format wants it. */
EXPORTED uint32_t nats_checksum(const uint8_t *at, int64_t size)
{
    uint32_t crc = 0xffffffff;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word = little_endian(at, 8) ^ crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= crc_tables[7 - i][word >> (8 * i) & 255];
    }
    for (; size > 0; at++, size--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *at) & 255];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* Repeats what stands `offset` bytes before `to`, which may overlap with what is written. */
static void copy_from_before(uint8_t *to, int64_t offset, int64_t count)
{
    const uint8_t *from = to - offset;
    for (int64_t step = offset; count > 0; step *= 2) { /* what is behind `from` doubles each time */
        int64_t part = step < count ? step : count;
        memcpy(to, from, (size_t)part);
        to += part;
        count -= part;
    }
}

/* Unpacks a block, without the length in front of it, into exactly `length` bytes. */
static bool unpack(const uint8_t *in, int64_t size, uint8_t *out, int64_t length)
{
    int64_t at = 0, done = 0, offset = 0, count;
    while (at < size) {
        const uint8_t tag = in[at++];
        const int kind = tag & 3;
        if (kind == 0) { /* bytes as they are */
            count = (tag >> 2) + 1;
            if (count > 60) {
                int bytes = (int)count - 60;
                if (size - at < bytes) return false;
                count = (int64_t)little_endian(in + at, bytes) + 1;
                at += bytes;
            }
            if (count > length - done || count > size - at) return false;
            if (count <= 16 && length - done >= 16 && size - at >= 16)
                memcpy(out + done, in + at, 16); /* cheaper than just as many as there are */
            else
                memcpy(out + done, in + at, (size_t)count);
            at += count;
            done += count;
            continue;
        }
        int bytes = kind == 1 ? 1 : kind == 2 ? 2 : 4;
        if (size - at < bytes) return false;
        int64_t found = (int64_t)little_endian(in + at, bytes);
        at += bytes;
        if (kind == 1) {
            count = tag >> 2 & 7;
            found |= (int64_t)(tag & 0xe0) << 3;
            if (found == 0) {
                found = offset;
                if (count > 4) {
                    bytes = (int)count - 4;
                    if (size - at < bytes) return false;
                    int64_t least = bytes == 1 ? 4 : bytes == 2 ? 1 << 8 : 1 << 16;
                    count = (int64_t)little_endian(in + at, bytes) + least;
                    at += bytes;
                }
            }
            count += 4;
        } else {
            count = (tag >> 2) + 1;
        }
        offset = found;
        if (offset == 0 || offset > done || count > length - done) return false;
        if (offset >= 16 && count <= 16 && length - done >= 16)
            memcpy(out + done, out + done - offset, 16);
        else
            copy_from_before(out + done, offset, count);
        done += count;
    }
    return done == length;
}

/* The length that a block unpacks to, and where the rest of it starts; -1 if it is no number. */
static int64_t unpacked_size(const uint8_t *in, int64_t size, int64_t *start)
{
    int64_t length = 0;
    for (int64_t i = 0; i < size && i < 5; i++) {
        length |= (int64_t)(in[i] & 127) << (7 * i);
        if (in[i] < 128) {
            *start = i + 1;
            return length;
        }
    }
    return -1;
}

/* Unpacks the whole chunks at the start of `in`, as far as there is room for them.

   `state` is what is known of the stream (0 at first), `consumed` how many bytes of `in` were taken.
   Returns how many bytes were made, or a fault. */
EXPORTED int64_t nats_s2_decode(const uint8_t *in, int64_t size, uint8_t *out, int64_t room,
                                int32_t *state, int64_t *consumed)
{
    int64_t at = 0, made = 0;
    for (*consumed = 0; size - at >= 4; *consumed = at) {
        const int kind = in[at];
        const int64_t length = (int64_t)little_endian(in + at + 1, 3);
        const uint8_t *body = in + at + 4;
        if (*state == BEFORE_IDENTIFIER && kind != IDENTIFIER) return NOT_S2;
        if (kind == IDENTIFIER && length != 6) return NOT_S2;
        if (kind > PLAIN && kind < FIRST_SKIPPABLE) return UNKNOWN_CHUNK;
        if (length > size - at - 4) break;
        if (kind == IDENTIFIER) {
            if (!memcmp(body, "S2sTwO", 6)) *state = IS_S2;
            else if (!memcmp(body, "sNaPpY", 6)) *state = IS_SNAPPY;
            else return NOT_S2;
        } else if (kind <= PLAIN) {
            if (length < 4) return BROKEN_CHUNK;
            const uint32_t checksum = (uint32_t)little_endian(body, 4);
            int64_t start = 0, unpacked = length - 4;
            if (kind == COMPRESSED) unpacked = unpacked_size(body + 4, length - 4, &start);
            int64_t most = *state == IS_SNAPPY ? LARGEST_SNAPPY_BLOCK : LARGEST_BLOCK;
            if (unpacked < 0 || unpacked > most) return BROKEN_CHUNK;
            if (unpacked > room - made) break;
            if (kind == PLAIN)
                memcpy(out + made, body + 4, (size_t)unpacked);
            else if (!unpack(body + 4 + start, length - 4 - start, out + made, unpacked))
                return BROKEN_CHUNK;
            if (nats_checksum(out + made, unpacked) != checksum) return WRONG_CHECKSUM;
            made += unpacked;
        }
        at += 4 + length;
    }
    return made;
}
