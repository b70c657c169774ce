/* Launcher: the callable that users hold. Part of _fast.c. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Launch *target;     /* replaced as a whole; NULL: the ordinary way */
    PyObject *captures; /* a dict: launches take the ordinary way as long as it holds anything */
    PyObject *ordinary; /* does the same in Python, and knows what to say where it can't be done */
    PyObject *weakrefs;
} Launcher;

static int
refuse_arguments(size_t count, PyObject *names)
{
    if (PyVectorcall_NARGS(count) == 0 && (names == NULL || PyTuple_GET_SIZE(names) == 0))
        return 0;
    PyErr_SetString(PyExc_TypeError, "a replay takes no arguments; call it without any.");
    return -1;
}

static PyObject *
launcher_call(PyObject *op, PyObject *const *Py_UNUSED(args), size_t count, PyObject *names)
{
    Launcher *self = (Launcher *)op;
    int done = refuse_arguments(count, names);
    if (done == 0 && PyDict_GET_SIZE(self->captures) == 0) {
        Launch *target;
        Py_BEGIN_CRITICAL_SECTION(self);
        target = (Launch *)Py_XNewRef(self->target);
        Py_END_CRITICAL_SECTION();
        if (target != NULL) {
            done = launch(target);
            Py_DECREF(target); /* by now it may be the last that holds the executable */
        }
    }
    if (done > 0)
        Py_RETURN_NONE;
    return done < 0 ? NULL : PyObject_CallNoArgs(self->ordinary);
}

static PyObject *
launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"captures", "ordinary", NULL};
    PyObject *captures, *ordinary;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Launcher", names, &PyDict_Type, &captures, &ordinary))
        return NULL;
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = launcher_call;
    self->captures = Py_NewRef(captures);
    self->ordinary = Py_NewRef(ordinary);
    return (PyObject *)self;
}

static PyObject *
launcher_get_target(PyObject *op, void *Py_UNUSED(closure))
{
    Launcher *self = (Launcher *)op;
    PyObject *target;
    Py_BEGIN_CRITICAL_SECTION(self);
    target = Py_XNewRef(self->target);
    Py_END_CRITICAL_SECTION();
    return target == NULL ? Py_NewRef(Py_None) : target;
}

static int
launcher_set_target(PyObject *op, PyObject *target, void *Py_UNUSED(closure))
{
    Launcher *self = (Launcher *)op;
    State *state = PyType_GetModuleState(Py_TYPE(op));
    if (state == NULL)
        return -1;
    if (target == NULL || (target != Py_None && !Py_IS_TYPE(target, state->launch_type))) {
        PyErr_SetString(PyExc_TypeError, "target must be a Launch or None.");
        return -1;
    }
    Launch *before;
    Py_BEGIN_CRITICAL_SECTION(self);
    before = self->target;
    self->target = target == Py_None ? NULL : (Launch *)Py_NewRef(target);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(before);
    return 0;
}

static int
launcher_traverse(PyObject *op, visitproc visit, void *arg)
{
    Launcher *self = (Launcher *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->target);
    Py_VISIT(self->captures);
    Py_VISIT(self->ordinary);
    return 0;
}

static int
launcher_clear(PyObject *op)
{
    Py_CLEAR(((Launcher *)op)->target); /* the only one that can be younger than the launcher */
    return 0;
}

static void
launcher_dealloc(PyObject *op)
{
    Launcher *self = (Launcher *)op;
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    Py_XDECREF(self->target);
    Py_XDECREF(self->captures);
    Py_XDECREF(self->ordinary);
    let_go(op);
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, vectorcall), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Launcher, weakrefs), READONLY},
    {NULL},
};

static PyGetSetDef launcher_getset[] = {
    {"target", launcher_get_target, launcher_set_target,
     "The Launch of the calls to come; None: they take the ordinary way."},
    {NULL},
};

static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, "Enqueue one run of the graph on the stream that was bound."},
    {Py_tp_new, launcher_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, launcher_traverse},
    {Py_tp_clear, launcher_clear},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_members, launcher_members},
    {Py_tp_getset, launcher_getset},
    {0, NULL},
};

static PyType_Spec launcher_spec = {
    .name = "accelerator_graph._core._fast.Launcher",
    .basicsize = sizeof(Launcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = launcher_slots,
};
