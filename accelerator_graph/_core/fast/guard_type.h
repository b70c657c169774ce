/* The type of guards: how they are made, and told where the arrays are. Part of _fast.c. */

static int
parameter_init(Guard *self, Parameter *parameter, PyObject *given)
{
    PyObject *source, *value, *altered = NULL;
    int kind;
    if (!PyArg_ParseTuple(given, "OiO|O:Guard", &source, &kind, &value, &altered))
        return -1;
    parameter->kind = (Kind)kind;
    parameter->position = -1;
    if (PyLong_Check(source)) {
        parameter->position = PyLong_AsSsize_t(source);
        if (parameter->position < 0 || parameter->position >= self->positional) {
            PyErr_Format(PyExc_ValueError, "there is no argument %R; pass positions or names.", source);
            return -1;
        }
    }
    parameter->name = Py_NewRef(source);
    parameter->value = Py_NewRef(kind == ARRAY ? (PyObject *)Py_TYPE(value) : value);
    if (kind != ARRAY)
        return 0;
    if (self->arrays == MOST_ARRAYS) {
        PyErr_Format(PyExc_ValueError, "a guard takes at most %d arrays; read calls with more.", MOST_ARRAYS);
        return -1;
    }
    self->arrays++;
    parameter->altered = altered == Py_None ? NULL : Py_XNewRef(altered);
    parameter->requires_grad = PyObject_GetAttr(value, self->grad);
    return parameter->requires_grad == NULL ? -1 : layout_init(&parameter->layout, value);
}

static PyObject *
guard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"captures", "lock", "positional", "named", "parameters", "modes", NULL};
    State *state = PyType_GetModuleState(type);
    PyObject *captures, *lock, *parameters, *modes;
    Py_ssize_t positional, named;
    if (state == NULL
        || !PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!nnO!O!:Guard", names, &PyDict_Type, &captures,
                                        state->types[LOCK], &lock, &positional, &named, &PyTuple_Type,
                                        &parameters, &PyTuple_Type, &modes))
        return NULL;
    Guard *self = (Guard *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = guard_call;
    self->captures = Py_NewRef(captures);
    self->lock = (Lock *)Py_NewRef(lock);
    self->modes = Py_NewRef(modes);
    self->positional = positional;
    self->named = named;
    self->grad = PyUnicode_InternFromString("requires_grad");
    self->record = PyUnicode_InternFromString("record_stream");
    self->parameters = PyMem_Calloc((size_t)PyTuple_GET_SIZE(parameters) + 1, sizeof *self->parameters);
    if (self->grad == NULL || self->record == NULL || self->parameters == NULL) {
        PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parameters); i++) {
        self->count++;
        if (parameter_init(self, &self->parameters[i], PyTuple_GET_ITEM(parameters, i)) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

/* Put a target in the place of the one before; the lock is held. */
static void
guard_set_target(Guard *self, Target target)
{
    Target before;
    target_hold(&target);
    Py_BEGIN_CRITICAL_SECTION(self);
    before = self->target;
    self->target = target;
    Py_END_CRITICAL_SECTION();
    target_let_go(&before);
}

static PyObject *
guard_stop(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    Guard *self = (Guard *)op;
    Py_ssize_t repeats = self->repeats;
    self->repeats = 0;
    guard_set_target(self, (Target){0});
    return PyLong_FromSsize_t(repeats);
}

static PyObject *
references_to(PyObject *arrays)
{
    PyObject *found = PyTuple_New(PyList_GET_SIZE(arrays));
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(arrays); i++) {
        PyObject *each = PyWeakref_NewRef(PyList_GET_ITEM(arrays, i), NULL);
        if (each == NULL)
            Py_CLEAR(found);
        else
            PyTuple_SET_ITEM(found, i, each);
    }
    return found;
}

/* Take how calls are repeated: a launcher, a result or what makes it, patches or None, and a stream or None. */
static int
target_take(Guard *self, Target *target, PyObject *how)
{
    State *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *result, *finish, *patches, *user;
    if (state == NULL
        || !PyArg_ParseTuple(how, "O!OOOO:follow", state->types[LAUNCHER], &target->launcher, &result, &finish,
                             &patches, &user))
        return -1;
    if ((result != Py_None && !PyTuple_CheckExact(result)) || (result == Py_None) != (finish != Py_None)
        || (patches != Py_None && !Py_IS_TYPE(patches, state->types[PATCHES]))) {
        PyErr_SetString(PyExc_TypeError,
                        "calls are repeated with a result in a tuple or what makes it; pass Patches or None, too.");
        return -1;
    }
    target->result = result == Py_None ? NULL : result;
    target->finish = finish == Py_None ? NULL : finish;
    target->patches = patches == Py_None ? NULL : (Patches *)patches;
    target->user = user == Py_None ? NULL : user;
    if (target->patches != NULL && target->patches->arrays != self->arrays) {
        PyErr_SetString(PyExc_ValueError, "the patches must be of as many arrays as the guard has.");
        return -1;
    }
    return 0;
}

static PyObject *
guard_follow(PyObject *op, PyObject *args)
{
    Guard *self = (Guard *)op;
    Target target = {0};
    PyObject *how, *addresses, *arrays;
    void *stream, *status, *alive;
    if (!PyArg_ParseTuple(args, "(OO!O&O&O&)O!OO:follow", &target.where, &PyTuple_Type, &target.questions, address,
                          &stream, address, &status, address, &alive, &PyTuple_Type, &how, &addresses, &arrays))
        return NULL;
    target.stream = stream;
    target.status = (capturing_function)status;
    target.alive = (capturing_function)alive;
    if (addresses != Py_None) {
        if (arrays != Py_None && (!PyList_Check(arrays) || PyList_GET_SIZE(arrays) != self->arrays)) {
            PyErr_SetString(PyExc_ValueError, "there must be as many arrays as the guard has.");
            return NULL;
        }
        guard_set_target(self, (Target){0});
        if (target_take(self, &target, how) < 0 || take_addresses(addresses, self->addresses, self->arrays) < 0
            || (arrays != Py_None && (target.kept = references_to(arrays)) == NULL))
            return NULL;
    }
    guard_set_target(self, target);
    Py_XDECREF(target.kept);
    Py_RETURN_NONE;
}

static int
guard_traverse(PyObject *op, visitproc visit, void *arg)
{
    Guard *self = (Guard *)op;
    Py_VISIT(self->target.where);
    Py_VISIT(self->target.questions);
    Py_VISIT(self->target.launcher);
    Py_VISIT(self->target.result);
    Py_VISIT(self->target.finish);
    Py_VISIT(self->target.patches);
    Py_VISIT(self->target.user);
    Py_VISIT(self->target.kept);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->parameters[i].value);
        Py_VISIT(self->parameters[i].altered);
    }
    return references_traverse(op, visit, arg);
}

static int
guard_clear(PyObject *op)
{
    guard_set_target((Guard *)op, (Target){0}); /* nothing else can be younger than the guard */
    return 0;
}

static void
guard_dealloc(PyObject *op)
{
    Guard *self = (Guard *)op;
    PyObject_GC_UnTrack(op);
    target_let_go(&self->target);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Parameter *each = &self->parameters[i];
        Py_XDECREF(each->name);
        Py_XDECREF(each->value);
        Py_XDECREF(each->altered);
        Py_XDECREF(each->requires_grad);
        PyMem_Free(each->layout.extents);
    }
    PyMem_Free(self->parameters);
    references_dealloc(op);
}

static PyMethodDef guard_methods[] = {
    {"follow", guard_follow, METH_VARARGS, NULL},
    {"stop", guard_stop, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef guard_members[] = {
    CALLED(Guard),
    OWNED(Guard, captures),
    OWNED(Guard, lock),
    OWNED(Guard, modes),
    OWNED(Guard, grad),
    OWNED(Guard, record),
    {NULL},
};

static PyType_Slot guard_slots[] = {
    {Py_tp_doc, "Tells whether a call is like the one before, and repeats that if nothing has moved."},
    {Py_tp_new, guard_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, guard_traverse},
    {Py_tp_clear, guard_clear},
    {Py_tp_dealloc, guard_dealloc},
    {Py_tp_members, guard_members},
    {Py_tp_methods, guard_methods},
    {0, NULL},
};
