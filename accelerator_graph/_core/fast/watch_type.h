/* The type of a Watch. Part of _fast.c. */

static PyObject *
watch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ask", "status", "alive", "stream", "active", "last", "kinds", "kind_of", "waits",
                            "waits_in_c", "pure", "after_call", "disable", "functions", NULL};
    void *status, *alive, *stream;
    int active;
    PyObject *ask, *last, *kinds, *kind_of, *waits, *waits_in_c, *pure, *after_call, *disable,
        *functions;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&O&O&iO!O!OO!O!O!OOO!:Watch", names, &ask, address, &status,
                                     address, &alive, address, &stream, &active, &PyDict_Type, &last,
                                     &PyDict_Type, &kinds, &kind_of, &PyFrozenSet_Type, &waits,
                                     &PyFrozenSet_Type, &waits_in_c, &PyTuple_Type, &pure, &after_call,
                                     &disable, &PyTuple_Type, &functions))
        return NULL;
    if (PyTuple_GET_SIZE(functions) != WATCH_FUNCTIONS) {
        PyErr_Format(PyExc_ValueError, "functions must be %d, not %zd.", WATCH_FUNCTIONS,
                     PyTuple_GET_SIZE(functions));
        return NULL;
    }
    PyObject *key = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *name = PyUnicode_InternFromString("__name__");
    Watch *self = key == NULL || name == NULL ? NULL : (Watch *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(name);
        return NULL;
    }
    self->status = (capturing_function)status;
    self->alive = (capturing_function)alive;
    self->stream = stream;
    self->active = active;
    self->alone = 1;
    self->thread = PyThread_get_thread_ident();
    self->ask = Py_NewRef(ask);
    self->last = Py_NewRef(last);
    self->kinds = Py_NewRef(kinds);
    self->kind_of = Py_NewRef(kind_of);
    self->waits = Py_NewRef(waits);
    self->waits_in_c = Py_NewRef(waits_in_c);
    self->pure = Py_NewRef(pure);
    self->after_call = Py_NewRef(after_call);
    self->disable = Py_NewRef(disable);
    self->functions = Py_NewRef(functions);
    self->key = key;
    self->name = name;
    return (PyObject *)self;
}

static PyMemberDef watch_members[] = {
    OWNED(Watch, key),
    OWNED(Watch, ask),
    OWNED(Watch, last),
    OWNED(Watch, kinds),
    OWNED(Watch, kind_of),
    OWNED(Watch, waits),
    OWNED(Watch, waits_in_c),
    OWNED(Watch, pure),
    OWNED(Watch, after_call),
    OWNED(Watch, disable),
    OWNED(Watch, functions),
    OWNED(Watch, name),
    {"alone", T_BOOL, offsetof(Watch, alone), 0},
    {NULL},
};

/* No tp_clear: like a tuple, it refers only to what was there before, so something else closes a cycle. */
static PyType_Slot watch_slots[] = {
    {Py_tp_doc, "Asks at each event of the interpreter whether a capture goes on."},
    {Py_tp_new, watch_new},
    {Py_tp_traverse, references_traverse},
    {Py_tp_dealloc, references_dealloc},
    {Py_tp_methods, watch_methods},
    {Py_tp_members, watch_members},
#if PY_VERSION_HEX < 0x030C0000
    {Py_tp_call, watch_call},
#endif
    {0, NULL},
};
