/* Graphs and executables: the types that the files about them share. */
#ifndef GRAPHS_H
#define GRAPHS_H

#include "streams.h"

enum { IF, WHILE, SWITCH };

struct conditional { /* what a conditional node has */
    uint64_t condition; /* a handle of the API */
    int type;
    unsigned count;
    struct graph **bodies;
    handle *handles; /* of the bodies, in memory that the program may look at */
};

struct node {
    handle handle;
    struct graph *graph;
    struct work work;
    struct graph *child; /* of a child graph node: its own copy */
    struct conditional *conditional;
    struct nodes after;
    handle original; /* in a clone: the node that this one stands for */
    struct node *pair;
    size_t index, waits;
    unsigned cluster[3]; /* of a kernel */
    void *parameters[MOST_PARAMETERS]; /* where those of a kernel are, once that was asked */
    void *extra[5];                    /* or the block that they are in */
    size_t block_bytes;
    unsigned char block[MOST_PARAMETER_BYTES];
    bool reached;
    bool disabled; /* in an executable: it does nothing */
    bool forgotten; /* the program took it out of a stream's dependencies: nothing has to join it */
};

struct graph {
    unsigned id; /* as profilers name it */
    handle handle; /* 0 for an executable's own copy, whose nodes have none either */
    int references;
    bool owned;     /* by a node */
    struct graph *around; /* a body: the graph that its node is in */
    bool ruined; /* the capture of a body in it has failed: the driver ends the process when the graph goes */
    bool capturing; /* into it: it can't be destroyed, nor can its nodes */
    bool allocates;
    bool single; /* as it allocates, or has conditional nodes: it has one executable, no clone, and is no child */
    int executables;
    handle original;
    struct nodes nodes;
};

struct graph *graph_new(bool named);
struct graph *graph_copy(const struct graph *graph, bool named);
struct node *graph_add(struct graph *graph, const struct work *work, const struct nodes *after);
bool graph_fits(struct graph *old, struct graph *new); /* whether the one can become the other */
bool graph_reaches_all(struct graph *graph, const struct nodes *from);
bool no_data(const uint64_t *data, size_t count); /* of edges */
bool graph_nodes(const struct graph *graph, const handle *handles, size_t count, struct nodes *nodes);
CUresult graph_add_after(handle *answer, handle graph, const handle *after, size_t count,
    const struct work *work, struct graph *child);
struct conditional *conditional_new(uint64_t condition, int type, unsigned count);
struct conditional *conditional_copy(const struct conditional *conditional, bool named);
void conditional_forget_handles(struct conditional *conditional);
void conditional_free(struct conditional *conditional);
bool conditions_used(const struct graph *graph); /* all that were made for it */
void condition_set(uint64_t condition, unsigned value);
void condition_begin(uint64_t condition); /* a run of the graph begins */
void condition_test(uint64_t condition);  /* a run gets to the node, or to the end of its body */
bool condition_takes(const struct work *body);
void graph_forget_handles(struct graph *graph);
void graph_free_node(struct node *node);
void graph_destroy(struct graph *graph); /* the handles go; the rest when nobody refers to it */
void graph_release(struct graph *graph);

struct plan { /* outlives its executable while a run goes on */
    int references;
    struct graph *graph; /* a copy, so that the program may do what it likes with its own */
    size_t count;
    struct work works[];
};

struct plan *plan_new(const struct graph *graph); /* null if there is a cycle */

struct executable {
    handle handle;
    uint64_t flags;
    struct graph *source;
    struct plan *plan;
    struct marker *last;
};

#endif
