/* What the types share: their state, and that an object's references are among its members. Part of _fast.c. */

enum { LOCK, LAUNCH, LAUNCHER, PATCHES, RELAXED, FOLLOWER, METHOD, GUARD, WATCH, ASK, CAPTURE_INFO, RELAXING, TYPES };

typedef struct {
    PyTypeObject *types[TYPES];
} State;

#define OWNED(type, field) {"_" #field, T_OBJECT_EX, offsetof(type, field), READONLY}
#define CALLED(type) {"__vectorcalloffset__", T_PYSSIZET, offsetof(type, vectorcall), READONLY}

/* Visit the members that are references. */
static int
references_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    for (PyMemberDef *each = Py_TYPE(op)->tp_members; each->name != NULL; each++)
        if (each->type == T_OBJECT_EX)
            Py_VISIT(*(PyObject **)((char *)op + each->offset));
    return 0;
}

/* A heap type's share in what every one of its objects has to do when it goes. */
static void
let_go(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

/* Let go of the members that are references, and of the object. */
static void
references_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    if (Py_TYPE(op)->tp_weaklistoffset > 0)
        PyObject_ClearWeakRefs(op);
    for (PyMemberDef *each = Py_TYPE(op)->tp_members; each->name != NULL; each++)
        if (each->type == T_OBJECT_EX)
            Py_CLEAR(*(PyObject **)((char *)op + each->offset));
    let_go(op);
}

static int
address(PyObject *number, void *result)
{
    *(void **)result = PyLong_AsVoidPtr(number);
    return *(void **)result != NULL || !PyErr_Occurred();
}

/* Make sure that a callable has raised what a code that is not 0 stands for; `answer` is what it returned. */
static void
raise_by(PyObject *failed, int code, PyObject *answer)
{
    if (answer == NULL)
        return;
    Py_DECREF(answer);
    PyErr_Format(PyExc_SystemError, "the driver answered %d, and %R did not raise.", code, failed);
}
