/* What an address says about the memory that it lies in. */
#include "memory.h"

enum attribute { CONTEXT_OF = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8,
    DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12, IS_MAPPED = 13 };
enum { HOST_MEMORY = 1, DEVICE_MEMORY = 2, NO_DEVICE_AT_ALL = -2 };

/* Memory that the driver didn't allocate (`of` is null) answers zero to most of it. */
static CUresult tell(enum attribute which, const struct allocation *of, const char *address, void *answer) {
    bool on_host = of && of->place == ON_HOST;
    switch (which) {
        case CONTEXT_OF: *(handle *)answer = of ? of->context : 0; break;
        case MEMORY_TYPE: *(unsigned *)answer = !of ? 0 : on_host ? HOST_MEMORY : DEVICE_MEMORY; break;
        case DEVICE_POINTER: *(const char **)answer = of ? address : NULL; break;
        case HOST_POINTER: *(const char **)answer = of && of->place != ON_DEVICE ? address : NULL; break;
        case IS_MANAGED: *(unsigned *)answer = of && of->place == MANAGED; break;
        case DEVICE_ORDINAL: *(int *)answer = of ? of->device : NO_DEVICE_AT_ALL; break;
        case RANGE_START: *(char **)answer = of ? of->address : NULL; break;
        case RANGE_SIZE: *(size_t *)answer = of ? of->nbytes : 0; break;
        case IS_MAPPED: *(unsigned *)answer = of != NULL; break;
        default: count_unknown("an attribute of a pointer"); return NOT_SUPPORTED;
    }
    return SUCCESS;
}

API(4, 0, cuPointerGetAttributes, 7000, cuPointerGetAttributes, unsigned, count, const int *, which,
    void **, answers, const char *, address) {
    struct context *context;
    TRY(context_current(&context));
    if (!count || !which || !answers) return INVALID_VALUE;
    const struct allocation *of = allocation_around(address);
    for (unsigned i = 0; i < count; i++) TRY(tell((enum attribute)which[i], of, address, answers[i]));
    return SUCCESS;
}

API(3, 0, cuPointerGetAttribute, 4000, cuPointerGetAttribute, void *, answer, int, which,
    const char *, address) {
    struct context *context;
    TRY(context_current(&context));
    const struct allocation *of = allocation_around(address);
    return of ? tell((enum attribute)which, of, address, answer) : INVALID_VALUE;
}
