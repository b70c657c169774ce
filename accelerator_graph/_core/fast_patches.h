/* Patches: the nodes of an executable that have addresses of arrays, and what changes them. Part of _fast.c. */

#define MOST_ARRAYS 128

typedef int (*set_function)(void *executable, void *node, void *parameters);
typedef int (*set_in_function)(void *executable, void *node, void *parameters, void *context);

typedef struct {
    uint64_t *cell;  /* in the parameters of the node */
    Py_ssize_t array; /* whose address stands there */
    uint64_t distance; /* from the beginning of the array */
} Word;

typedef struct {
    void *function, *handle, *parameters;
    void *context; /* NULL, or a fourth argument of the function */
    Py_ssize_t first, end; /* its words */
} PatchedNode;

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* as long as this lives, the parameters do */
    Py_buffer now;   /* of each array the address that the executable has; 0 if nobody knows */
    Py_buffer sizes, captured, own;
    uint64_t alignment;
    void *executable;
    current_function current; /* NULL, or asked first: nothing is changed in another context than this */
    void *context;
    Py_ssize_t arrays, nodes, words;
    PatchedNode *node;
    Word *word;
} Patches;

static int
is_in(uint64_t address, uint64_t nbytes, const uint64_t *ranges, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (address < ranges[2 * i + 1] && ranges[2 * i] < address + nbytes)
            return 1;
    return 0;
}

/* Return 1 if an array may be there: aligned as the captured one, and apart from the other arrays and from the
 * memory of the graph. */
static int
patches_take(Patches *self, Py_ssize_t array, const uintptr_t *addresses)
{
    const uint64_t *sizes = self->sizes.buf, *captured = self->captured.buf;
    uint64_t address = addresses[array], nbytes = sizes[array];
    if (address == 0 || (address - captured[array]) % self->alignment != 0
        || is_in(address, nbytes, self->own.buf, self->own.len / (Py_ssize_t)(2 * sizeof(uint64_t))))
        return 0;
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        uint64_t other[2] = {addresses[i], addresses[i] + sizes[i]};
        if (i != array && is_in(address, nbytes, other, 1))
            return 0;
    }
    return 1;
}

/* Return 1 if the arrays that are not where they were may be there. Runs no code of Python. */
static int
patches_fit(Patches *self, const uintptr_t *addresses)
{
    const uint64_t *now = self->now.buf;
    for (Py_ssize_t i = 0; i < self->arrays; i++)
        if (now[i] == 0 || (now[i] != addresses[i] && !patches_take(self, i, addresses)))
            return 0;
    return 1;
}

/* Return 1 if nodes can be changed on this thread. */
static int
patches_ready(Patches *self)
{
    void *context = NULL;
    return self->current == NULL || (self->current(&context) == 0 && context == self->context);
}

static int
node_moves(Patches *self, PatchedNode *node, const uintptr_t *addresses)
{
    const uint64_t *now = self->now.buf;
    for (Py_ssize_t i = node->first; i < node->end; i++)
        if (now[self->word[i].array] != addresses[self->word[i].array])
            return 1;
    return 0;
}

static void
node_fill(Patches *self, PatchedNode *node, const uint64_t *addresses)
{
    for (Py_ssize_t i = node->first; i < node->end; i++) {
        Word *word = &self->word[i];
        uint64_t value = addresses[word->array] + word->distance;
        memcpy(word->cell, &value, sizeof value); /* which need not be aligned */
    }
}

/* Return 1 if the driver takes the parameters; else it has changed nothing. */
static int
node_set(Patches *self, PatchedNode *node)
{
    if (node->context == NULL)
        return ((set_function)node->function)(self->executable, node->handle, node->parameters) == 0;
    return ((set_in_function)node->function)(self->executable, node->handle, node->parameters, node->context) == 0;
}

/* Change the nodes before one back. Of a node that the driver refuses to change, nobody knows the addresses. */
static void
patches_undo(Patches *self, Py_ssize_t failed, const uintptr_t *addresses)
{
    uint64_t *now = self->now.buf;
    char unknown[MOST_ARRAYS] = {0};
    for (Py_ssize_t i = 0; i < failed; i++) {
        PatchedNode *node = &self->node[i];
        if (!node_moves(self, node, addresses))
            continue;
        node_fill(self, node, now);
        if (!node_set(self, node))
            for (Py_ssize_t word = node->first; word < node->end; word++)
                unknown[self->word[word].array] = 1;
    }
    for (Py_ssize_t i = 0; i < self->arrays; i++)
        if (unknown[i])
            now[i] = 0;
}

/* Have later runs use arrays at these addresses: 1, or 0 if the driver refuses, and then nothing is changed or
 * some of the present addresses are 0. Needs no GIL. */
static int
patches_move(Patches *self, const uintptr_t *addresses)
{
    uint64_t *now = self->now.buf, wanted[MOST_ARRAYS];
    for (Py_ssize_t i = 0; i < self->arrays; i++)
        wanted[i] = addresses[i];
    for (Py_ssize_t i = 0; i < self->nodes; i++) {
        PatchedNode *node = &self->node[i];
        if (!node_moves(self, node, addresses))
            continue;
        node_fill(self, node, wanted);
        if (!node_set(self, node)) {
            node_fill(self, node, now);
            patches_undo(self, i, addresses);
            return 0;
        }
    }
    memcpy(now, wanted, (size_t)self->arrays * sizeof *now);
    return 1;
}
