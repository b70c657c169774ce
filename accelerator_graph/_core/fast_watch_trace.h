/* A Watch as trace and profile function, before Python 3.12. Part of _fast.c. */

static const char *const trace_events[] = {"call", "exception", "line", "return"};

static int
trace_in_python(Watch *self, int which, PyFrameObject *frame, const char *event, PyObject *arg)
{
    PyObject *function = PyTuple_GET_ITEM(self->functions, which);
    PyObject *answer = PyObject_CallFunction(function, "OsO", frame, event, arg == NULL ? Py_None : arg);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Note a line or a return, if that can be done here: 1 if it was, 0 if Python has to; -1 on errors. */
static int
trace_noted(Watch *self, PyFrameObject *frame, PyCodeObject *code, int what)
{
    int waits = what == PyTrace_RETURN ? PySet_Contains(self->waits, code->co_name) : 0;
    if (waits || !self->alone)
        return waits < 0 ? -1 : 0;
    int goes_on = watch_goes_on(self);
    if (goes_on <= 0 || what == PyTrace_EXCEPTION)
        return goes_on;
    if (what == PyTrace_RETURN)
        return watch_note_caller(self, frame) < 0 ? -1 : 1;
    PyObject *line = PyLong_FromLong(PyFrame_GetLineNumber(frame));
    int failed = line == NULL ? -1 : watch_note(self, (PyObject *)code, line, Py_True);
    Py_XDECREF(line);
    return failed < 0 ? -1 : 1;
}

static int
watch_trace(PyObject *op, PyFrameObject *frame, int what, PyObject *arg)
{
    Watch *self = (Watch *)op;
    if (what != PyTrace_LINE && what != PyTrace_RETURN && what != PyTrace_EXCEPTION)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    int kind = watch_kind(self, code);
    int done = kind < 0 ? -1 : is_unwatched(kind, code) ? 1 : trace_noted(self, frame, code, what);
    Py_DECREF(code);
    return done ? (done < 0 ? -1 : 0) : trace_in_python(self, TRACES, frame, trace_events[what], arg);
}

static int
watch_profile(PyObject *op, PyFrameObject *frame, int what, PyObject *arg)
{
    Watch *self = (Watch *)op;
    if ((what != PyTrace_C_RETURN && what != PyTrace_C_EXCEPTION) || is_pure(self, arg))
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *offset = NULL;
    int kind = watch_kind(self, code);
    int failed = kind < 0 ? -1 : 0;
    if (failed || kind == PASSIVE)
        goto end;
    int by_hand = !self->alone || self->after_call != Py_None ? 1 : waits_in_c(self, arg);
    int goes_on = by_hand ? 0 : watch_goes_on(self);
    if (by_hand < 0 || goes_on < 0)
        failed = -1;
    else if (!goes_on)
        failed = trace_in_python(self, PROFILES, frame,
                                 what == PyTrace_C_RETURN ? "c_return" : "c_exception", arg);
    else if ((offset = PyLong_FromLong(PyFrame_GetLasti(frame))) == NULL)
        failed = -1;
    else
        failed = watch_note(self, (PyObject *)code, offset, Py_False);
end:
    Py_XDECREF(offset);
    Py_DECREF(code);
    return failed;
}

static PyObject *
watch_trace_thread(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyEval_SetTrace(watch_trace, op);
    Py_RETURN_NONE;
}

static PyObject *
watch_profile_thread(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyEval_SetProfile(watch_profile, op);
    Py_RETURN_NONE;
}

/* Who finds this object by sys.gettrace() may call it, or set it again: then Python does it all. */
static PyObject *
watch_call(PyObject *op, PyObject *args, PyObject *kwargs)
{
    Watch *self = (Watch *)op;
    int which = PyTuple_GET_SIZE(args) == 3 && PyUnicode_Check(PyTuple_GET_ITEM(args, 1))
                        && PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(args, 1)) > 2
                        && PyUnicode_READ_CHAR(PyTuple_GET_ITEM(args, 1), 1) == '_'
                    ? PROFILES
                    : TRACES;
    return PyObject_Call(PyTuple_GET_ITEM(self->functions, which), args, kwargs);
}
