/* A Watch as the callbacks of sys.monitoring, from Python 3.12 on. Part of _fast.c. */

enum { LINE = 0, PYTHON_RETURNS, C_RETURNS, RAISES, WATCH_FUNCTIONS };

static PyObject *
in_python(Watch *self, int which, PyObject *const *args, Py_ssize_t count)
{
    return PyObject_Vectorcall(PyTuple_GET_ITEM(self->functions, which), args, count, NULL);
}

static PyObject *
none_unless(int failed)
{
    return failed ? NULL : Py_NewRef(Py_None);
}

static int
event_kind(Watch *self, PyObject *const *args, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted && PyCode_Check(args[0]))
        return watch_kind(self, (PyCodeObject *)args[0]);
    PyErr_Format(PyExc_TypeError, "an event has a code object and %zd more arguments.", wanted - 1);
    return -1;
}

static PyObject *
watch_line(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    Watch *self = (Watch *)op;
    int kind = event_kind(self, args, count, 2);
    if (kind < 0)
        return NULL;
    if (is_unwatched(kind, (PyCodeObject *)args[0]))
        return Py_NewRef(self->disable);
    int goes_on = watch_goes_on(self);
    if (goes_on == 0)
        return in_python(self, LINE, args, count);
    return none_unless(goes_on < 0 || watch_note(self, args[0], args[1], Py_True) < 0);
}

static PyObject *
watch_python_returns(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    Watch *self = (Watch *)op;
    int kind = event_kind(self, args, count, 3);
    if (kind < 0)
        return NULL;
    if (is_unwatched(kind, (PyCodeObject *)args[0]))
        return Py_NewRef(self->disable);
    int waits = PySet_Contains(self->waits, ((PyCodeObject *)args[0])->co_name);
    int goes_on = waits ? 0 : watch_goes_on(self);
    if (waits < 0 || goes_on < 0)
        return NULL;
    if (!goes_on)
        return in_python(self, PYTHON_RETURNS, args, count);
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    int failed = frame == NULL ? 0 : watch_note_caller(self, frame);
    Py_XDECREF(frame);
    return none_unless(failed);
}

static PyObject *
watch_c_returns(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    Watch *self = (Watch *)op;
    if (count == 4 && is_pure(self, args[2]))
        Py_RETURN_NONE;
    int kind = event_kind(self, args, count, 4);
    if (kind < 0)
        return NULL;
    if (kind == PASSIVE)
        Py_RETURN_NONE;
    int waits = is_wait_in_c(self, args[2]);
    int goes_on = waits ? 0 : watch_goes_on(self);
    if (waits < 0 || goes_on < 0)
        return NULL;
    if (!goes_on)
        return in_python(self, C_RETURNS, args, count);
    if (self->after_call != Py_None && PyThread_get_thread_ident() == self->thread) {
        PyObject *told = PyObject_Vectorcall(self->after_call, args + 2, 2, NULL);
        if (told == NULL)
            return NULL;
        Py_DECREF(told);
    }
    return none_unless(watch_note(self, args[0], args[1], Py_False) < 0);
}

static PyObject *
watch_raises(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    Watch *self = (Watch *)op;
    int goes_on = watch_goes_on(self);
    return goes_on ? none_unless(goes_on < 0) : in_python(self, RAISES, args, count);
}

static PyMethodDef watch_methods[] = {
    {"close", watch_close, METH_NOARGS, NULL},
    {"line", (PyCFunction)(void (*)(void))watch_line, METH_FASTCALL, NULL},
    {"python_returns", (PyCFunction)(void (*)(void))watch_python_returns, METH_FASTCALL, NULL},
    {"c_returns", (PyCFunction)(void (*)(void))watch_c_returns, METH_FASTCALL, NULL},
    {"raises", (PyCFunction)(void (*)(void))watch_raises, METH_FASTCALL, NULL},
    {NULL},
};
