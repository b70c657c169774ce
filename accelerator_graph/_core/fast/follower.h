/* Follower: a launcher for each stream, and the one of the current stream is called. Part of _fast.c. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *current;   /* answers the handle of the current stream */
    PyObject *argument;  /* what it takes; NULL: nothing */
    work_stream_function work_stream; /* NULL, or asked in its place, about a device */
    int device_type, device;
    PyObject *launchers; /* a dict, by handle */
    PyObject *missing;   /* takes a handle; returns a launcher, which it may have put in the dict */
    void *last;          /* the handle of the last call, and its launcher, which may be NULL */
    PyObject *latest;
} Follower;

/* Return the launcher of the last call if it is the one for a handle, else NULL. Most calls come for that. */
static PyObject *
follower_latest(Follower *self, void *number)
{
    PyObject *launcher;
    Py_BEGIN_CRITICAL_SECTION(self);
    launcher = number == self->last ? Py_XNewRef(self->latest) : NULL;
    Py_END_CRITICAL_SECTION();
    return launcher;
}

/* Return the launcher for a handle, or NULL with an error. */
static PyObject *
follower_find(Follower *self, PyObject *handle)
{
    PyObject *launcher, *other;
    void *number = PyLong_AsVoidPtr(handle);
    if (number == NULL && PyErr_Occurred())
        return NULL;
    if ((launcher = follower_latest(self, number)) != NULL)
        return launcher;
#if PY_VERSION_HEX >= 0x030D0000
    PyDict_GetItemRef(self->launchers, handle, &launcher);
#else
    launcher = Py_XNewRef(PyDict_GetItemWithError(self->launchers, handle));
#endif
    if (launcher == NULL && !PyErr_Occurred())
        launcher = PyObject_CallOneArg(self->missing, handle);
    if (launcher == NULL)
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    other = self->latest;
    self->latest = Py_NewRef(launcher);
    self->last = number;
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(other);
    return launcher;
}

static PyObject *
follower_call(PyObject *op, PyObject *const *Py_UNUSED(args), size_t count, PyObject *names)
{
    Follower *self = (Follower *)op;
    if (refuse_arguments(count, names) < 0)
        return NULL;
    void *number;
    PyObject *launcher = NULL;
    if (self->work_stream != NULL) {
        if (self->work_stream(self->device_type, self->device, &number) == 0)
            launcher = follower_latest(self, number);
        else
            PyErr_Clear(); /* which the other way raises again */
    }
    if (launcher == NULL) {
        PyObject *handle = self->argument == NULL ? PyObject_CallNoArgs(self->current)
                                                  : PyObject_CallOneArg(self->current, self->argument);
        if (handle == NULL)
            return NULL;
        launcher = follower_find(self, handle);
        Py_DECREF(handle);
        if (launcher == NULL)
            return NULL;
    }
    PyObject *answer = PyObject_CallNoArgs(launcher);
    Py_DECREF(launcher);
    return answer;
}

static PyObject *
follower_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"launchers", "missing", "current", "argument", "exchange", NULL};
    PyObject *launchers, *missing, *current, *argument = NULL, *exchange = NULL, *arrays = NULL;
    int device_type = 0, device = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OO!:Follower", names, &PyDict_Type, &launchers,
                                     &missing, &current, &argument, &PyTuple_Type, &exchange)
        || (exchange != NULL && !PyArg_ParseTuple(exchange, "|Oii:Follower", &arrays, &device_type, &device)))
        return NULL;
    Exchange *functions = arrays == NULL ? NULL : exchange_of(arrays);
    if (functions == NULL)
        PyErr_Clear();
    Follower *self = (Follower *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = follower_call;
    self->current = Py_NewRef(current);
    self->argument = Py_XNewRef(argument);
    self->work_stream = functions == NULL ? NULL : functions->work_stream;
    self->device_type = device_type;
    self->device = device;
    self->launchers = Py_NewRef(launchers);
    self->missing = Py_NewRef(missing);
    return (PyObject *)self;
}

static int
follower_clear(PyObject *op)
{
    Py_CLEAR(((Follower *)op)->latest);
    return 0;
}

static PyMemberDef follower_members[] = {
    OWNED(Follower, current),
    OWNED(Follower, argument),
    OWNED(Follower, launchers),
    OWNED(Follower, missing),
    OWNED(Follower, latest),
    CALLED(Follower),
    {NULL},
};

static PyType_Slot follower_slots[] = {
    {Py_tp_doc, "Enqueue one run of the graph on the stream that is current."},
    {Py_tp_new, follower_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, references_traverse},
    {Py_tp_clear, follower_clear},
    {Py_tp_dealloc, references_dealloc},
    {Py_tp_members, follower_members},
    {0, NULL},
};
