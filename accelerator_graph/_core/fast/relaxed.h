/* Relaxed: a context is current and the thread's capture mode is relaxed, for a while. Part of _fast.c.
 *
 * No signal is handled between the steps, so nothing can come between a change and the note that undoes it.
 */

typedef int (*context_function)(void *context);
typedef int (*exchange_function)(int *mode);

enum { GET_CURRENT, SET_CURRENT, EXCHANGE }; /* as in Driver's tuple of names */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyTypeObject *section_type;
    current_function current;
    context_function set;
    exchange_function exchange;
    int mode;
    PyObject *failed; /* takes the number of a function and its code, and raises */
} Relaxing;

typedef struct {
    void *before;
    int mode;
    char moved, exchanged; /* what has to be undone */
} Change;

typedef struct {
    PyObject_HEAD
    Relaxing *how;
    void *context;
    Change change;
} Relaxed;

/* Undo what was done, whatever the driver answers. */
static void
change_undo(const Relaxing *how, Change *change)
{
    if (change->exchanged)
        how->exchange(&change->mode);
    if (change->moved)
        how->set(change->before);
    change->exchanged = change->moved = 0;
}

/* Return 1; after an error 0, with nothing changed. */
static int
change_make(const Relaxing *how, void *context, Change *change)
{
    int failed = GET_CURRENT, code;
    change->before = NULL;
    change->exchanged = change->moved = 0;
    code = how->current(&change->before);
    if (code == 0 && change->before != context) {
        failed = SET_CURRENT;
        change->moved = 1;
        code = how->set(context);
    }
    if (code == 0) {
        failed = EXCHANGE;
        change->mode = how->mode;
        code = how->exchange(&change->mode);
        change->exchanged = code == 0;
    }
    if (code == 0)
        return 1;
    change_undo(how, change);
    raise_by(how->failed, code, PyObject_CallFunction(how->failed, "ii", failed, code));
    return 0;
}

static PyObject *
relaxed_run(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Relaxed *self = (Relaxed *)op;
    Change change;
    if (count == 0) {
        PyErr_SetString(PyExc_TypeError, "run() takes a callable and its arguments.");
        return NULL;
    }
    if (!change_make(self->how, self->context, &change))
        return NULL;
    PyObject *answer = PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), names);
    change_undo(self->how, &change);
    return answer;
}

static PyObject *
relaxed_enter(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    Relaxed *self = (Relaxed *)op;
    if (self->change.exchanged || self->change.moved) {
        PyErr_SetString(PyExc_RuntimeError, "this context was entered already; make another one.");
        return NULL;
    }
    if (!change_make(self->how, self->context, &self->change))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
relaxed_exit(PyObject *op, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    Relaxed *self = (Relaxed *)op;
    change_undo(self->how, &self->change);
    Py_RETURN_NONE;
}

static void
relaxed_dealloc(PyObject *op)
{
    Relaxed *self = (Relaxed *)op;
    change_undo(self->how, &self->change); /* an interrupt came between entering and leaving */
    Py_DECREF(self->how);
    let_go(op);
}

static PyObject *
relaxing_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Relaxing *self = (Relaxing *)op;
    if (PyVectorcall_NARGS(count) != 1 || (names != NULL && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "the only argument must be a context.");
        return NULL;
    }
    void *context = handle_of(args[0]);
    if (context == NULL && PyErr_Occurred())
        return NULL;
    Relaxed *made = (Relaxed *)self->section_type->tp_alloc(self->section_type, 0);
    if (made != NULL) {
        made->how = (Relaxing *)Py_NewRef(op);
        made->context = context;
    }
    return (PyObject *)made;
}

static PyObject *
relaxing_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"current", "set_current", "exchange", "mode", "failed", NULL};
    void *current, *set, *exchange;
    int mode;
    PyObject *failed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&O&iO:Relaxing", names, address, &current, address, &set,
                                     address, &exchange, &mode, &failed))
        return NULL;
    if (current == NULL || set == NULL || exchange == NULL) {
        PyErr_SetString(PyExc_ValueError, "every function must be the address of a function, not 0.");
        return NULL;
    }
    Relaxing *self = (Relaxing *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    State *state = PyType_GetModuleState(type);
    self->vectorcall = relaxing_call;
    self->section_type = (PyTypeObject *)Py_NewRef(state->types[RELAXED]);
    self->current = (current_function)current;
    self->set = (context_function)set;
    self->exchange = (exchange_function)exchange;
    self->mode = mode;
    self->failed = Py_NewRef(failed);
    return (PyObject *)self;
}

static PyMethodDef relaxed_methods[] = {
    {"__enter__", relaxed_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))relaxed_exit, METH_FASTCALL, NULL},
    {"run", (PyCFunction)(void (*)(void))relaxed_run, METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL},
};

static PyType_Slot relaxed_slots[] = {
    {Py_tp_doc, "A context in which the calling thread disturbs no capture."},
    {Py_tp_dealloc, relaxed_dealloc},
    {Py_tp_methods, relaxed_methods},
    {0, NULL},
};

static PyMemberDef relaxing_members[] = {
    OWNED(Relaxing, section_type),
    OWNED(Relaxing, failed),
    CALLED(Relaxing),
    {NULL},
};

static PyType_Slot relaxing_slots[] = {
    {Py_tp_doc, "Makes a `Relaxed` for a context."},
    {Py_tp_new, relaxing_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, references_traverse},
    {Py_tp_dealloc, references_dealloc},
    {Py_tp_members, relaxing_members},
    {0, NULL},
};
