/* Memory: what its files share. The device's memory is the host's. */
#ifndef MEMORY_H
#define MEMORY_H

#include "driver.h"

enum place { ON_DEVICE, ON_HOST, MANAGED };

struct allocation {
    char *address;
    size_t nbytes;
    handle context;
    int device;
    enum place place;
    struct pool *pool; /* null: of none */
    bool alive;
    bool of_graph; /* the address lasts as long as nodes have it, whatever runs allocate and free */
    size_t users;  /* nodes that allocate or free it, and frees that streams have not come to */
    struct allocation *next;
};

extern struct allocation *allocations; /* all of them */

size_t allocations_live(void);
size_t memory_total(void);
CUresult allocation_new(struct context *context, size_t nbytes, enum place place, struct allocation **answer);
struct allocation *allocation_at(const void *address);
struct allocation *allocation_around(const void *address);
void allocations_forget_context(const struct context *context);
void allocation_keep(struct allocation *allocation); /* goes when nobody keeps it and it is not alive */
void allocation_release(struct allocation *allocation);
void allocation_end(struct allocation *allocation); /* it is not alive any more */

/* ---- amounts: what is used of what is reserved, and how much it was at most ----------------------- */

struct amounts {
    uint64_t reserved, reserved_most, used, used_most;
};

uint64_t in_parts(uint64_t nbytes); /* as much as is reserved for so much */
void amounts_use(struct amounts *amounts, uint64_t nbytes);
void amounts_trim(struct amounts *amounts, uint64_t least);

/* ---- the memory of pools and of graphs ------------------------------------------------------------ */

enum { PINNED = 1, ON_A_DEVICE = 1 };

struct pool_properties {
    int type, handle_types;
    struct {
        int type, number;
    } location;
    void *security;
    size_t most;
    char reserved[56];
};

CUresult pool_of(handle which, struct pool **pool);
CUresult pool_of_device(int device, struct pool **pool);
void pool_take(struct pool *pool, struct allocation *allocation);
void pool_forget(struct allocation *allocation);
void graph_memory_live(struct allocation *allocation, bool alive);
void graph_memory_need(int device, uint64_t nbytes);

#endif
