/* Amounts of memory: what is used of what is reserved, and how much it was at most. */
#include "memory.h"

static const uint64_t PART = 1 << 25; /* what is reserved at a time, as on an H200 */

static void raise_to(uint64_t *value, uint64_t least) {
    if (*value < least) *value = least;
}

uint64_t in_parts(uint64_t nbytes) { return (nbytes + PART - 1) / PART * PART; }

void amounts_use(struct amounts *amounts, uint64_t nbytes) {
    amounts->used = nbytes;
    raise_to(&amounts->used_most, nbytes);
    raise_to(&amounts->reserved, in_parts(nbytes));
    raise_to(&amounts->reserved_most, amounts->reserved);
}

void amounts_trim(struct amounts *amounts, uint64_t least) {
    uint64_t kept = in_parts(least > amounts->used ? least : amounts->used);
    if (amounts->reserved > kept) amounts->reserved = kept;
}
