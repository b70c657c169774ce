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
    bool alive;
    bool of_graph; /* the address lasts as long as nodes have it, whatever runs allocate and free */
    size_t users;  /* nodes that allocate or free it, and frees that streams have not come to */
    struct allocation *next;
};

extern struct allocation *allocations; /* all of them */

size_t allocations_live(void);
CUresult allocation_new(struct context *context, size_t nbytes, enum place place, struct allocation **answer);
struct allocation *allocation_at(const void *address);
struct allocation *allocation_around(const void *address);
void allocations_forget_context(const struct context *context);
void allocation_keep(struct allocation *allocation); /* goes when nobody keeps it and it is not alive */
void allocation_release(struct allocation *allocation);
void allocation_end(struct allocation *allocation); /* it is not alive any more */

/* ---- the memory of graphs ------------------------------------------------------------------------- */

void graph_memory_live(struct allocation *allocation, bool alive);
void graph_memory_need(int device, uint64_t nbytes);

#endif
