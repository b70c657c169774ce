/* The smallest callable in C that launches: it holds the launch function and its two handles, releases the
 * GIL and checks the code. What Python itself costs; nothing is kept alive, and nothing is said of an error.
 */
#include <Python.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    int (*launch)(void *executable, void *stream);
    void *executable, *stream;
} Minimal;

static PyObject *
call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Minimal *self = (Minimal *)op;
    int code;
    (void)args, (void)count, (void)names;
    Py_BEGIN_ALLOW_THREADS
    code = self->launch(self->executable, self->stream);
    Py_END_ALLOW_THREADS
    return code ? PyErr_Format(PyExc_RuntimeError, "the launch answered %d", code) : Py_NewRef(Py_None);
}

static PyObject *
new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Minimal *self = (Minimal *)type->tp_alloc(type, 0);
    (void)kwargs;
    if (self == NULL)
        return NULL;
    self->vectorcall = call;
    if (!PyArg_ParseTuple(args, "KKK", &self->launch, &self->executable, &self->stream))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Minimal, vectorcall), READONLY},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "_minimal.Minimal",
    .basicsize = sizeof(Minimal),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = slots,
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_minimal"};

PyMODINIT_FUNC
PyInit__minimal(void)
{
    PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
    if (module != NULL)
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    PyObject *type = module ? PyType_FromSpec(&spec) : NULL;
    if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
