/* Ask: a number that a driver knows of an object. CaptureInfo: a capture's number and how many nodes it has.
   Part of _fast.c. */

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
    void *nodes; /* CaptureInfo: counts the nodes of the graph that `function` tells */
    int edges;   /* CaptureInfo: `function` tells of edges, too */
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
    raise_by(self->failed, code, PyObject_CallFunction(self->failed, "i", code));
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
info_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Ask *self = (Ask *)op;
    if (PyVectorcall_NARGS(count) != 1 || (names != NULL && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "the only argument must be a stream.");
        return NULL;
    }
    void *stream = handle_of(args[0]), *graph = NULL, **dependencies, *edges;
    if (stream == NULL && PyErr_Occurred())
        return NULL;
    uint64_t id = 0;
    size_t many = 0;
    int status = 0, which = 0, code;
    if (self->edges)
        code = ((info_with_edges_function)self->function)(stream, &status, &id, &graph, &dependencies, &edges,
                                                          &many);
    else
        code = ((info_function)self->function)(stream, &status, &id, &graph, &dependencies, &many);
    if (code == 0 && (status != CAPTURE_ACTIVE || graph == NULL))
        Py_RETURN_NONE;
    if (code == 0) {
        which = 1;
        code = ((nodes_function)self->nodes)(graph, NULL, &many);
    }
    if (code == 0)
        return Py_BuildValue("Kn", (unsigned long long)id, (Py_ssize_t)many);
    raise_by(self->failed, code, PyObject_CallFunction(self->failed, "ii", which, code));
    return NULL;
}

static PyObject *
ask_make(PyTypeObject *type, vectorcallfunc call, void *function, void *nodes, int edges, int waits,
         PyObject *failed)
{
    if (function == NULL || (nodes == NULL && call == info_call)) {
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
info_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"info", "nodes", "edges", "failed", NULL};
    void *info, *nodes;
    int edges;
    PyObject *failed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&pO:CaptureInfo", names, address, &info, address, &nodes,
                                     &edges, &failed))
        return NULL;
    return ask_make(type, info_call, info, nodes, edges, 0, failed);
}

static PyMemberDef ask_members[] = {
    OWNED(Ask, failed),
    CALLED(Ask),
    {NULL},
};

#define ASK_SLOTS(doc, new)                                                                                  \
    {                                                                                                        \
        {Py_tp_doc, doc}, {Py_tp_new, new}, {Py_tp_call, PyVectorcall_Call}, {Py_tp_traverse, references_traverse}, \
            {Py_tp_dealloc, references_dealloc}, {Py_tp_members, ask_members}, {0, NULL},                           \
    }

static PyType_Slot ask_slots[] = ASK_SLOTS("Asks a driver for a number.", ask_new);
static PyType_Slot info_slots[] = ASK_SLOTS("Asks for a capture's number and how many nodes it has.", info_new);
