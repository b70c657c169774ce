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

/* ---- How they are made ------------------------------------------------------------------------ */

/* Take memory of 8-byte words, `count` of them, or an even number if that is -1. */
static int
take_words(PyObject *object, Py_buffer *buffer, Py_ssize_t count, int flags)
{
    if (PyObject_GetBuffer(object, buffer, flags) < 0)
        return -1;
    Py_ssize_t word = (Py_ssize_t)sizeof(uint64_t);
    if (count < 0 ? buffer->len % (2 * word) == 0 : buffer->len == count * word)
        return 0;
    PyErr_SetString(PyExc_ValueError, "there must be an address and a size for each array, and pairs for ranges.");
    return -1;
}

/* Copy addresses from memory of 8-byte words. */
static int
take_addresses(PyObject *given, uintptr_t *addresses, Py_ssize_t count)
{
    Py_buffer buffer = {0};
    int taken = take_words(given, &buffer, count, PyBUF_SIMPLE);
    for (Py_ssize_t i = 0; taken == 0 && i < count; i++) {
        uint64_t address;
        memcpy(&address, (char *)buffer.buf + i * (Py_ssize_t)sizeof address, sizeof address);
        addresses[i] = (uintptr_t)address;
    }
    PyBuffer_Release(&buffer);
    return taken;
}

static int
word_init(Patches *self, Word *word, PyObject *given)
{
    void *cell, *distance;
    if (!PyArg_ParseTuple(given, "O&nO&:Patches", address, &cell, &word->array, address, &distance))
        return -1;
    word->cell = cell;
    word->distance = (uintptr_t)distance;
    if (word->array >= 0 && word->array < self->arrays)
        return 0;
    PyErr_Format(PyExc_ValueError, "there is no array %zd; pass its position.", word->array);
    return -1;
}

static int
node_init(Patches *self, PatchedNode *node, PyObject *given)
{
    PyObject *words;
    if (!PyArg_ParseTuple(given, "O&O&O&O&O!:Patches", address, &node->function, address, &node->handle, address,
                          &node->parameters, address, &node->context, &PyTuple_Type, &words))
        return -1;
    if (node->function == NULL) {
        PyErr_SetString(PyExc_ValueError, "function must be the address of a function that sets nodes, not 0.");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(words);
    Word *more = PyMem_Realloc(self->word, (size_t)(self->words + count + 1) * sizeof *more);
    if (more == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->word = more;
    node->first = self->words;
    for (Py_ssize_t i = 0; i < count; i++)
        if (word_init(self, &self->word[self->words++], PyTuple_GET_ITEM(words, i)) < 0)
            return -1;
    node->end = self->words;
    return 0;
}

static int
patches_init(Patches *self, PyObject *now, PyObject *sizes, PyObject *captured, PyObject *own, PyObject *nodes)
{
    if (PyObject_GetBuffer(now, &self->now, PyBUF_WRITABLE) < 0)
        return -1;
    self->arrays = self->now.len / (Py_ssize_t)sizeof(uint64_t);
    if (self->arrays > MOST_ARRAYS || self->alignment == 0) {
        PyErr_Format(PyExc_ValueError, "patches take at most %d arrays, and an alignment of at least 1.",
                     MOST_ARRAYS);
        return -1;
    }
    if (take_words(sizes, &self->sizes, self->arrays, PyBUF_SIMPLE) < 0
        || take_words(captured, &self->captured, self->arrays, PyBUF_SIMPLE) < 0
        || take_words(own, &self->own, -1, PyBUF_SIMPLE) < 0)
        return -1;
    self->node = PyMem_Calloc((size_t)PyTuple_GET_SIZE(nodes) + 1, sizeof *self->node);
    if (self->node == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->nodes < PyTuple_GET_SIZE(nodes); self->nodes++)
        if (node_init(self, &self->node[self->nodes], PyTuple_GET_ITEM(nodes, self->nodes)) < 0)
            return -1;
    return 0;
}

static PyObject *
patches_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"owner", "executable", "now",     "sizes",   "captured", "alignment",
                            "own",   "nodes",      "current", "context", NULL};
    PyObject *owner, *now, *sizes, *captured, *own, *nodes;
    void *executable, *current = NULL, *context = NULL;
    unsigned long long alignment;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&OOOKOO!|O&O&:Patches", names, &owner, address, &executable,
                                     &now, &sizes, &captured, &alignment, &own, &PyTuple_Type, &nodes, address,
                                     &current, address, &context))
        return NULL;
    Patches *self = (Patches *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->owner = Py_NewRef(owner);
    self->executable = executable;
    self->alignment = alignment;
    self->current = (current_function)current;
    self->context = context;
    if (patches_init(self, now, sizes, captured, own, nodes) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *
patches_move_to(PyObject *op, PyObject *given, int apart)
{
    Patches *self = (Patches *)op;
    const uint64_t *now = self->now.buf;
    uintptr_t addresses[MOST_ARRAYS];
    int done = patches_ready(self);
    if (take_addresses(given, addresses, self->arrays) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < self->arrays; i++)
        done = done && now[i] != 0; /* else it could not be undone */
    done = done && (!apart || patches_fit(self, addresses));
    if (done) {
        Py_BEGIN_ALLOW_THREADS
        done = patches_move(self, addresses);
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(done);
}

static PyObject *
patches_move_any(PyObject *op, PyObject *given)
{
    return patches_move_to(op, given, 0);
}

static PyObject *
patches_move_apart(PyObject *op, PyObject *given)
{
    return patches_move_to(op, given, 1);
}

static void
patches_dealloc(PyObject *op)
{
    Patches *self = (Patches *)op;
    PyBuffer_Release(&self->now);
    PyBuffer_Release(&self->sizes);
    PyBuffer_Release(&self->captured);
    PyBuffer_Release(&self->own);
    PyMem_Free(self->node);
    PyMem_Free(self->word);
    references_dealloc(op);
}

static PyMethodDef patches_methods[] = {
    {"move", patches_move_any, METH_O, NULL},
    {"move_apart", patches_move_apart, METH_O, NULL},
    {NULL},
};

static PyMemberDef patches_members[] = {
    OWNED(Patches, owner),
    {NULL},
};

static PyType_Slot patches_slots[] = {
    {Py_tp_doc, "The nodes of an executable that have addresses of arrays, and what changes them."},
    {Py_tp_new, patches_new},
    {Py_tp_traverse, references_traverse},
    {Py_tp_dealloc, patches_dealloc},
    {Py_tp_members, patches_members},
    {Py_tp_methods, patches_methods},
    {0, NULL},
};
