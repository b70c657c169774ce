/* Ask: a number that a driver knows of an object. Recorded: how many nodes a capture has. Part of _fast.c. */

typedef int (*info_function)(void *stream, int *status, uint64_t *id, void **graph, void ***dependencies,
                             size_t *count);
typedef int (*info_with_edges_function)(void *stream, int *status, uint64_t *id, void **graph,
                                        void ***dependencies, void **edges, size_t *count);
typedef int (*nodes_function)(void *graph, void **nodes, size_t *count);

enum { CAPTURE_ACTIVE = 1 };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    void *function;
    void *nodes; /* Recorded: counts the nodes of the graph that `function` tells */
    int edges;   /* Recorded: `function` tells of edges, too */
    int waits;   /* Ask: `function` may take long */
    PyObject *failed;
} Ask;

/* Return the handle that an object stands for; NULL with an error if it is not a number. */
static void *
handle_of(PyObject *object)
{
    PyObject *number = PyNumber_Long(object);
    if (number == NULL)
        return NULL;
    void *handle = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return handle;
}

static PyObject *
ask_failed(Ask *self, int code)
{
    PyObject *answer = PyObject_CallFunction(self->failed, "i", code);
    if (answer != NULL) {
        Py_DECREF(answer);
        PyErr_Format(PyExc_SystemError, "the driver answered %d, and %R did not raise.", code, self->failed);
    }
    return NULL;
}

static PyObject *
ask_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Ask *self = (Ask *)op;
    Py_ssize_t given = PyVectorcall_NARGS(count);
    uint64_t answer = 0;
    int code;
    if (given > 1 || (names != NULL && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "there must be at most one argument, a handle.");
        return NULL;
    }
    if (given == 0)
        code = ((int (*)(uint64_t *))self->function)(&answer);
    else {
        void *handle = handle_of(args[0]);
        if (handle == NULL && PyErr_Occurred())
            return NULL;
        PyThreadState *thread = self->waits ? PyEval_SaveThread() : NULL;
        code = ((ask_function)self->function)(handle, &answer);
        if (thread != NULL)
            PyEval_RestoreThread(thread);
    }
    return code == 0 ? PyLong_FromUnsignedLongLong(answer) : ask_failed(self, code);
}

static PyObject *
recorded_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Ask *self = (Ask *)op;
    if (PyVectorcall_NARGS(count) != 1 || (names != NULL && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "the only argument must be a stream.");
        return NULL;
    }
    void *stream = handle_of(args[0]), *graph = NULL, **dependencies, *edges;
    if (stream == NULL && PyErr_Occurred())
        return NULL;
    uint64_t id;
    size_t many = 0;
    int status = 0, code;
    if (self->edges)
        code = ((info_with_edges_function)self->function)(stream, &status, &id, &graph, &dependencies, &edges,
                                                          &many);
    else
        code = ((info_function)self->function)(stream, &status, &id, &graph, &dependencies, &many);
    if (code == 0 && (status != CAPTURE_ACTIVE || graph == NULL))
        Py_RETURN_NONE;
    if (code == 0)
        code = ((nodes_function)self->nodes)(graph, NULL, &many);
    return code == 0 ? PyLong_FromSize_t(many) : ask_failed(self, code);
}

static PyObject *
ask_make(PyTypeObject *type, vectorcallfunc call, void *function, void *nodes, int edges, int waits,
         PyObject *failed)
{
    if (function == NULL || (nodes == NULL && call == recorded_call)) {
        PyErr_SetString(PyExc_ValueError, "every function must be the address of a function, not 0.");
        return NULL;
    }
    Ask *self = (Ask *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = call;
    self->function = function;
    self->nodes = nodes;
    self->edges = edges;
    self->waits = waits;
    self->failed = Py_NewRef(failed);
    return (PyObject *)self;
}

static PyObject *
ask_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "failed", "waits", NULL};
    void *function;
    PyObject *failed;
    int waits = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O|p:Ask", names, address, &function, &failed, &waits))
        return NULL;
    return ask_make(type, ask_call, function, NULL, 0, waits, failed);
}

static PyObject *
recorded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"info", "nodes", "edges", "failed", NULL};
    void *info, *nodes;
    int edges;
    PyObject *failed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&pO:Recorded", names, address, &info, address, &nodes,
                                     &edges, &failed))
        return NULL;
    return ask_make(type, recorded_call, info, nodes, edges, 0, failed);
}

/* No tp_clear: like a tuple, it refers only to what was there before, so something else closes a cycle. */
static int
ask_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((Ask *)op)->failed);
    return 0;
}

static void
ask_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    Py_XDECREF(((Ask *)op)->failed);
    let_go(op);
}

static PyMemberDef ask_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Ask, vectorcall), READONLY},
    {NULL},
};

#define ASK_SLOTS(doc, new)                                                                                  \
    {                                                                                                        \
        {Py_tp_doc, doc}, {Py_tp_new, new}, {Py_tp_call, PyVectorcall_Call}, {Py_tp_traverse, ask_traverse}, \
            {Py_tp_dealloc, ask_dealloc}, {Py_tp_members, ask_members}, {0, NULL},                           \
    }

static PyType_Slot ask_slots[] = ASK_SLOTS("Asks a driver for a number.", ask_new);
static PyType_Slot recorded_slots[] = ASK_SLOTS("Asks how many nodes a capture has recorded.", recorded_new);

static PyType_Spec ask_spec = {
    .name = "accelerator_graph._core._fast.Ask",
    .basicsize = sizeof(Ask),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = ask_slots,
};

static PyType_Spec recorded_spec = {
    .name = "accelerator_graph._core._fast.Recorded",
    .basicsize = sizeof(Ask),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = recorded_slots,
};
