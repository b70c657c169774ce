/* A Watch as a trace and profile function, before Python 3.12. Part of _fast.c. */

enum { WATCH_FUNCTIONS = 1 };

static const char *const trace_events[] = {
    [PyTrace_EXCEPTION] = "exception",
    [PyTrace_LINE] = "line",
    [PyTrace_RETURN] = "return",
    [PyTrace_C_EXCEPTION] = "c_exception",
    [PyTrace_C_RETURN] = "c_return",
};

static int
in_python(Watch *self, PyFrameObject *frame, int what, PyObject *arg)
{
    PyObject *function = PyTuple_GET_ITEM(self->functions, 0);
    arg = arg == NULL ? Py_None : arg;
    PyObject *answer = PyObject_CallFunction(function, "OsO", frame, trace_events[what], arg);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Note where a frame is. */
static int
watch_note_frame(Watch *self, PyFrameObject *frame, PyCodeObject *code, int is_line)
{
    PyObject *at = PyLong_FromLong(is_line ? PyFrame_GetLineNumber(frame) : PyFrame_GetLasti(frame));
    int failed = at == NULL ? -1 : watch_note(self, (PyObject *)code, at, is_line ? Py_True : Py_False);
    Py_XDECREF(at);
    return failed;
}

/* What an event of watched code comes to: 1 if it was noted, 0 if Python has to see it, -1 on errors. */
static int
watch_noted(Watch *self, PyFrameObject *frame, PyCodeObject *code, int what, PyObject *arg)
{
    int wait = 0, failed = 0;
    if (what == PyTrace_RETURN)
        wait = PySet_Contains(self->waits, code->co_name);
    else if (what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION)
        wait = self->after_call != Py_None ? 1 : is_wait_in_c(self, arg);
    int goes_on = wait || !self->alone ? 0 : watch_goes_on(self);
    if (wait < 0 || goes_on <= 0)
        return wait < 0 ? -1 : goes_on;
    if (what == PyTrace_RETURN)
        failed = watch_note_caller(self, frame);
    else if (what != PyTrace_EXCEPTION)
        failed = watch_note_frame(self, frame, code, what == PyTrace_LINE);
    return failed < 0 ? -1 : 1;
}

static int
watch_event(Watch *self, PyFrameObject *frame, int what, PyObject *arg)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int kind = watch_kind(self, code);
    int ignored = what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION ? kind == PASSIVE
                                                                           : is_unwatched(kind, code);
    int done = kind < 0 ? -1 : ignored ? 1 : watch_noted(self, frame, code, what, arg);
    Py_DECREF(code);
    return done == 0 ? in_python(self, frame, what, arg) : done < 0 ? -1 : 0;
}

static int
watch_trace(PyObject *op, PyFrameObject *frame, int what, PyObject *arg)
{
    int wanted = what == PyTrace_LINE || what == PyTrace_RETURN || what == PyTrace_EXCEPTION;
    return wanted ? watch_event((Watch *)op, frame, what, arg) : 0;
}

static int
watch_profile(PyObject *op, PyFrameObject *frame, int what, PyObject *arg)
{
    int wanted = (what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION) && !is_pure((Watch *)op, arg);
    return wanted ? watch_event((Watch *)op, frame, what, arg) : 0;
}

static PyObject *
watch_trace_lines(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyEval_SetTrace(watch_trace, op);
    Py_RETURN_NONE;
}

static PyObject *
watch_trace_calls(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyEval_SetProfile(watch_profile, op);
    Py_RETURN_NONE;
}

/* Who finds the object by sys.gettrace() may call it, or set it again. */
static PyObject *
watch_call(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return PyObject_Call(PyTuple_GET_ITEM(((Watch *)op)->functions, 0), args, kwargs);
}

static PyMethodDef watch_methods[] = {
    {"close", watch_close, METH_NOARGS, NULL},
    {"trace_lines", watch_trace_lines, METH_NOARGS, NULL},
    {"trace_calls", watch_trace_calls, METH_NOARGS, NULL},
    {NULL},
};
