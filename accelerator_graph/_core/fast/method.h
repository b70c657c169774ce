/* Method: calls what is in a slot of its object. Part of _fast.c. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyMemberDescrObject *slot;
    PyObject *function; /* called where the slot holds None, or with arguments */
    PyObject *dict;
    PyObject *weakrefs;
} Method;

static PyObject *
method_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Method *self = (Method *)op;
    if (PyVectorcall_NARGS(count) == 1 && (names == NULL || PyTuple_GET_SIZE(names) == 0)
        && PyObject_TypeCheck(args[0], PyDescr_TYPE(self->slot))) {
        PyObject *held = PyMember_GetOne((const char *)args[0], self->slot->d_member);
        if (held == NULL)
            return NULL;
        PyObject *answer = held == Py_None ? NULL : PyObject_CallNoArgs(held);
        int called = held != Py_None;
        Py_DECREF(held);
        if (called)
            return answer;
    }
    return PyObject_Vectorcall(self->function, args, count, names);
}

static PyObject *
method_get(PyObject *op, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(op) : PyMethod_New(op, object);
}

static PyObject *
method_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slot", "function", NULL};
    PyObject *slot, *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Method", names, &PyMemberDescr_Type, &slot, &function))
        return NULL;
    Method *self = (Method *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = method_call;
    self->slot = (PyMemberDescrObject *)Py_NewRef(slot);
    self->function = Py_NewRef(function);
    return (PyObject *)self;
}

/* No tp_clear: like a tuple, it refers only to what was there before, and its dict closes a cycle. */
static int
method_traverse(PyObject *op, visitproc visit, void *arg)
{
    Method *self = (Method *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->slot);
    Py_VISIT(self->function);
    Py_VISIT(self->dict);
    return 0;
}

static void
method_dealloc(PyObject *op)
{
    Method *self = (Method *)op;
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    Py_XDECREF(self->slot);
    Py_XDECREF(self->function);
    Py_XDECREF(self->dict);
    let_go(op);
}

static PyObject *
method_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyObject_GetAttrString(op, "__qualname__"); /* pickled by name, as functions are */
}

static PyMethodDef method_methods[] = {
    {"__reduce__", method_reduce, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef method_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Method, vectorcall), READONLY},
    {"__dictoffset__", T_PYSSIZET, offsetof(Method, dict), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Method, weakrefs), READONLY},
    {NULL},
};

static PyGetSetDef method_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL},
    {NULL},
};

static PyType_Slot method_slots[] = {
    {Py_tp_doc, "A method that calls what is in a slot of its object, or else a function."},
    {Py_tp_new, method_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, method_get},
    {Py_tp_traverse, method_traverse},
    {Py_tp_dealloc, method_dealloc},
    {Py_tp_members, method_members},
    {Py_tp_methods, method_methods},
    {Py_tp_getset, method_getset},
    {0, NULL},
};

static PyType_Spec method_spec = {
    .name = "accelerator_graph._core._fast.Method",
    .basicsize = sizeof(Method),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL
             | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = method_slots,
};
