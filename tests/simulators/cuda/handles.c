/* Handles: numbers that look like addresses, are never used twice and know their kind. */
#include <stdlib.h>

#include "streams.h"

enum { FIRST = 1 << 20, STEP = 64 };

struct entry {
    void *object;
    enum kind kind;
};

static struct entry *entries;
static size_t count, capacity;
static size_t live[KINDS];
static unsigned long long stale;

handle handle_new(enum kind kind, void *object) {
    if (count == capacity) {
        capacity = capacity ? 2 * capacity : 1024;
        entries = realloc(entries, capacity * sizeof *entries);
    }
    entries[count] = (struct entry){object, kind};
    live[kind]++;
    return FIRST + STEP * count++;
}

static struct entry *find(handle handle, enum kind kind) {
    size_t index = (handle - FIRST) / STEP;
    if (handle < FIRST || handle % STEP || index >= count) return NULL;
    struct entry *entry = &entries[index];
    return entry->object && entry->kind == kind ? entry : NULL;
}

bool handle_is(handle handle, enum kind kind) { return find(handle, kind) != NULL; }

void *handle_get(handle handle, enum kind kind) {
    struct entry *entry = find(handle, kind);
    if (entry) return entry->object;
    stale += handle != 0; /* null is refused safely by any driver */
    return NULL;
}

void handle_drop(handle handle) {
    struct entry *entry = &entries[(handle - FIRST) / STEP];
    live[entry->kind]--;
    entry->object = NULL;
}

size_t handle_live(enum kind kind) { return live[kind]; }

/* ---- what tests call ----------------------------------------------------------------------------- */

static const char *const NAMES[] = {
    [CONTEXT] = "contexts", [STREAM] = "streams", [EVENT] = "events", [GRAPH] = "graphs",
    [NODE] = "nodes", [EXECUTABLE] = "executables", [MODULE] = "modules", [LIBRARY] = "libraries",
};

/* The name of the account of that number, null after the last one, and how many of these things live. */
EXPORT const char *driver_account(unsigned number, unsigned long long *value) {
    const char *name = NULL;
    driver_lock();
    for (unsigned kind = 0; kind < KINDS && !name; kind++)
        if (kind < sizeof NAMES / sizeof *NAMES && NAMES[kind] && !number--) {
            name = NAMES[kind];
            *value = live[kind];
        }
    if (!name && !number--) {
        name = "allocations";
        *value = allocations_live();
    }
    if (!name && !number--) {
        name = "captures";
        *value = captures_live();
    }
    driver_unlock();
    return name;
}

/* How often a handle was used that meant nothing, or nothing any more: a real driver may crash then. */
EXPORT unsigned long long driver_stale_handles(void) {
    driver_lock();
    unsigned long long answer = stale;
    driver_unlock();
    return answer;
}
