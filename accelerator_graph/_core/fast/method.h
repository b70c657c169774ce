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
    OWNED(Method, slot),
    OWNED(Method, function),
    OWNED(Method, dict),
    CALLED(Method),
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
    {Py_tp_traverse, references_traverse},
    {Py_tp_dealloc, references_dealloc},
    {Py_tp_members, method_members},
    {Py_tp_methods, method_methods},
    {Py_tp_getset, method_getset},
    {0, NULL},
};
