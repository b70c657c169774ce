/* Faults on purpose: calls that fail, calls that take long, and how often each function was called.
 * Knows nothing of CUDA, so that a wrapper around any other runtime can be driven in the same way. */
#ifndef FAULTS_H
#define FAULTS_H

#include <stdbool.h>

/* One function of the library under test. Made once, never freed. */
struct fault_point {
    const char *name;
    unsigned long long calls;
    unsigned delay;
    struct fault_point *next;
};

void fault_point_add(struct fault_point *point);

/* Count a call, wait as long as was asked for, and return the code that it has to answer, or 0.
 * With `*after`, the call does its work first. */
int fault_meet(struct fault_point *point, bool *after);

#endif
