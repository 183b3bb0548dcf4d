/* What the functions of this library return instead of a count. Keep in step with library.py. */

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

enum {
    NOT_S2 = -1,
    BROKEN_CHUNK = -2,
    WRONG_CHECKSUM = -3,
    UNKNOWN_CHUNK = -4,
    BROKEN_ENTRY = -5,
    LONG_NAME = -6,
    LARGE_ENTRY = -7,
    LARGE_SEQUENCE = -8,
};
