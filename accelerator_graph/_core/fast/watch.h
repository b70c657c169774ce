/* Watch: whether a capture goes on, asked at the interpreter's events. Part of _fast.c.
 *
 * As long as it does, an event costs a few lookups and the driver's answer. Everything else is left to
 * functions in Python, which ask again.
 */

enum { WATCHED = 0, UNWATCHED = 1, PASSIVE = 2, UNWATCHED_IMPORT = 3 }; /* as in places.py */

typedef struct {
    PyObject_HEAD
    capturing_function status; /* NULL: `ask` is called */
    capturing_function alive;  /* NULL, or asked first: has to return 0 */
    void *stream;
    int active;
    char closed; /* the stream may be gone: it is not asked any more */
    char alone;  /* no other capture is watched */
    unsigned long thread;
    PyObject *key;        /* the thread that captures, as an int */
    PyObject *ask;        /* returns whether the capture goes on */
    PyObject *last;       /* dict: by thread, (code, line or offset, whether it is a line) */
    PyObject *kinds;      /* dict: what kind of code a file has, by its name */
    PyObject *kind_of;    /* returns the kind for a name */
    PyObject *waits;      /* frozenset: names of functions in Python, and of functions in C, whose return */
    PyObject *waits_in_c; /* Python has to see */
    PyObject *pure;       /* tuple: functions in C that break nothing */
    PyObject *after_call; /* None, or told of each call into C of the thread that captures */
    PyObject *disable;    /* returned where no event is wanted again */
    PyObject *functions;  /* tuple: what does in Python what the methods do */
    PyObject *name;       /* "__name__" */
} Watch;

static int
watch_goes_on(Watch *self)
{
    int answer = 0, state = 0;
    if (self->status == NULL) {
        PyObject *found = PyObject_CallNoArgs(self->ask);
        if (found == NULL)
            return -1;
        answer = PyObject_IsTrue(found);
        Py_DECREF(found);
        return answer;
    }
    Py_BEGIN_CRITICAL_SECTION(self); /* `close` waits for the answer */
    if (!self->closed && (self->alive == NULL || self->alive(self->stream, &state) == 0)) {
        state = 0;
        answer = self->status(self->stream, &state) == 0 && state == self->active;
    }
    Py_END_CRITICAL_SECTION();
    return answer;
}

static int
watch_kind(Watch *self, PyCodeObject *code)
{
    PyObject *file = code->co_filename;
    PyObject *found = PyDict_GetItemWithError(self->kinds, file); /* nothing is ever taken out */
    if (found != NULL)
        return (int)PyLong_AsLong(found);
    if (PyErr_Occurred() || (found = PyObject_CallOneArg(self->kind_of, file)) == NULL)
        return -1;
    int kind = (int)PyLong_AsLong(found);
    if ((kind < 0 && PyErr_Occurred()) || PyDict_SetItem(self->kinds, file, found) < 0)
        kind = -1;
    Py_DECREF(found);
    return kind;
}

static int
is_unwatched(int kind, PyCodeObject *code)
{
    return kind == UNWATCHED || kind == PASSIVE
           || (kind == UNWATCHED_IMPORT && PyUnicode_CompareWithASCIIString(code->co_name, "<module>") == 0);
}

/* Note the latest moment of this thread at which the capture still went on. */
static int
watch_note(Watch *self, PyObject *code, PyObject *position, PyObject *is_line)
{
    unsigned long thread = PyThread_get_thread_ident();
    PyObject *key = thread == self->thread ? Py_NewRef(self->key) : PyLong_FromUnsignedLong(thread);
    PyObject *moment = key == NULL ? NULL : PyTuple_Pack(3, code, position, is_line);
    int failed = moment == NULL ? -1 : PyDict_SetItem(self->last, key, moment);
    Py_XDECREF(moment);
    Py_XDECREF(key);
    return failed;
}

/* Note that this thread is in the frame that called another one. */
static int
watch_note_caller(Watch *self, PyFrameObject *frame)
{
    PyFrameObject *caller = PyFrame_GetBack(frame);
    if (caller == NULL)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(caller);
    PyObject *offset = PyLong_FromLong(PyFrame_GetLasti(caller));
    int failed = offset == NULL ? -1 : watch_note(self, (PyObject *)code, offset, Py_False);
    Py_XDECREF(offset);
    Py_DECREF(code);
    Py_DECREF(caller);
    return failed;
}

static int
is_pure(Watch *self, PyObject *function)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->pure); i++) {
        if (PyTuple_GET_ITEM(self->pure, i) == function)
            return 1;
    }
    return 0;
}

/* Whether a function in C has one of the names that let a stream wait. */
static int
is_wait_in_c(Watch *self, PyObject *function)
{
    if (PyType_Check(function))
        return 0;
    if (Py_IS_TYPE(function, &PyMethodDescr_Type))
        return PySet_Contains(self->waits_in_c, PyDescr_NAME(function));
    PyObject *name = PyObject_GetAttr(function, self->name);
    if (name == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    int found = PyUnicode_CheckExact(name) ? PySet_Contains(self->waits_in_c, name) : 0;
    Py_DECREF(name);
    return found;
}

/* Ask the driver no more. */
static PyObject *
watch_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    Py_BEGIN_CRITICAL_SECTION(op);
    ((Watch *)op)->closed = 1;
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}
