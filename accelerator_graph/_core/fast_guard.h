/* Guard: tells whether a call is like the one before, and repeats that if nothing has moved. Part of _fast.c. */

#define MOST_ARRAYS 64

typedef enum { ARRAY, CONSTANT, INSTANCE } Kind;

typedef struct {
    Kind kind;
    Py_ssize_t position; /* -1: by name */
    PyObject *name;
    PyObject *value; /* the type of an array, a constant itself, or a weak reference to an instance */
    Layout layout;
    PyObject *requires_grad; /* what an array has to say */
    PyObject *altered;       /* NULL, or takes an array: its elements are not what its bytes say */
} Parameter;

typedef struct {
    PyObject *where;     /* NULL: nothing is known; else what stands for the stream of the latest call */
    PyObject *questions; /* about the stream: a tuple, as `modes` */
    capturing_function status, alive; /* NULL, or have to say that the stream does not capture */
    void *stream;
    PyObject *launcher; /* NULL: no call is repeated */
    PyObject *result;   /* of a repeated call, in a tuple */
    PyObject *kept;     /* NULL, or weak references to the arrays, which have to be the same ones */
} Target;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *captures; /* a dict: as long as it holds anything, no call is like another */
    Lock *lock;         /* of the function: held for what is below */
    PyObject *modes;    /* a tuple of questions, each a callable, its arguments and the answer */
    PyObject *grad;     /* "requires_grad" */
    Py_ssize_t positional, named, arrays, count;
    Parameter *parameters;
    Target target;
    uintptr_t addresses[MOST_ARRAYS];
    Py_ssize_t repeats; /* calls since `stop` */
} Guard;

/* Ask every question of a tuple: 1 if all answers are as expected. Leaves no error. */
static int
answered(PyObject *questions)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(questions); i++) {
        PyObject *each = PyTuple_GET_ITEM(questions, i);
        Py_ssize_t size = PyTuple_GET_SIZE(each);
        PyObject *answer = size == 2 ? PyObject_CallNoArgs(PyTuple_GET_ITEM(each, 0))
                                     : PyObject_CallOneArg(PyTuple_GET_ITEM(each, 0), PyTuple_GET_ITEM(each, 1));
        int alike = answer == NULL ? -1 : PyObject_RichCompareBool(answer, PyTuple_GET_ITEM(each, size - 1), Py_EQ);
        Py_XDECREF(answer);
        if (alike < 0)
            PyErr_Clear();
        if (alike <= 0)
            return 0;
    }
    return 1;
}

static int
refers_to(PyObject *reference, PyObject *object)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    PyWeakref_GetRef(reference, &found);
    Py_XDECREF(found);
#else
    PyObject *found = PyWeakref_GetObject(reference);
#endif
    return found == object && object != Py_None; /* which a dead reference has, too */
}

static int
is_constant(PyObject *value, PyObject *constant)
{
    if (value == constant)
        return 1;
    return PyLong_CheckExact(value) && PyLong_CheckExact(constant)
           && PyObject_RichCompareBool(value, constant, Py_EQ) == 1;
}

/* Return an argument, borrowed; NULL without an error if there is none. */
static PyObject *
argument_of(Parameter *parameter, PyObject *args, PyObject *kwargs)
{
    if (parameter->position >= 0)
        return PyTuple_GET_ITEM(args, parameter->position);
    PyObject *found = PyDict_GetItemWithError(kwargs, parameter->name);
    if (found == NULL)
        PyErr_Clear();
    return found;
}

/* Compare the arguments, and note the arrays and where they are: 1 if all are alike. Leaves no error. */
static int
guard_fits(Guard *self, PyObject *args, PyObject *kwargs, PyObject **arrays, uintptr_t *addresses)
{
    Py_ssize_t found = 0;
    if (PyTuple_GET_SIZE(args) != self->positional || PyDict_GET_SIZE(kwargs) != self->named)
        return 0;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Parameter *each = &self->parameters[i];
        PyObject *value = argument_of(each, args, kwargs);
        if (value == NULL)
            return 0;
        if (each->kind == CONSTANT && !is_constant(value, each->value))
            return 0;
        if (each->kind == INSTANCE && !refers_to(each->value, value))
            return 0;
        if (each->kind != ARRAY)
            continue;
        if ((PyObject *)Py_TYPE(value) != each->value || !layout_is_of(&each->layout, value, &addresses[found]))
            return 0;
        for (Py_ssize_t before = 0; before < found; before++)
            if (arrays[before] == value)
                return 0;
        PyObject *grad = PyObject_GetAttr(value, self->grad);
        if (grad == NULL)
            PyErr_Clear();
        else
            Py_DECREF(grad); /* True or False, which stay */
        if (grad != each->requires_grad)
            return 0;
        arrays[found++] = value;
    }
    return answered(self->modes);
}

/* Return 1 if the arrays are the ones that are kept, if any are, and their elements are what their bytes say. */
static int
guard_takes(Guard *self, PyObject **arrays, PyObject *kept)
{
    for (Py_ssize_t i = 0, found = 0; i < self->count; i++) {
        Parameter *each = &self->parameters[i];
        if (each->kind != ARRAY)
            continue;
        PyObject *array = arrays[found];
        if (kept != NULL && !refers_to(PyTuple_GET_ITEM(kept, found), array))
            return 0;
        found++;
        PyObject *altered = each->altered == NULL ? Py_NewRef(Py_False) : PyObject_CallOneArg(each->altered, array);
        if (altered == NULL)
            PyErr_Clear();
        else
            Py_DECREF(altered);
        if (altered != Py_False)
            return 0;
    }
    return 1;
}

/* Return 1 if the stream is the current one and is not capturing. */
static int
target_is_ready(Target *target)
{
    int status = 0, unused = 0;
    return target->where != NULL && answered(target->questions)
           && (target->alive == NULL || target->alive(target->stream, &unused) == 0)
           && (target->status == NULL || (target->status(target->stream, &status) == 0 && status == 0));
}

/* Launch with the lock held, which lets no code of Python run: 1, 0 if that can't be done now, -1 if it failed. */
static int
guard_launch(Guard *self, Target *target, Launch *what, const uintptr_t *addresses)
{
    int code = 0, done = 0;
    if (!PyThread_acquire_lock(self->lock->lock, NOWAIT_LOCK))
        return 0;
    if (self->target.where == target->where && self->target.kept == target->kept && self->target.launcher != NULL
        && memcmp(self->addresses, addresses, (size_t)self->arrays * sizeof *addresses) == 0)
        done = launch_now(what, &code);
    self->repeats += done && code == 0;
    PyThread_release_lock(self->lock->lock);
    return done && code != 0 ? launch_failed(what, code) : done;
}

/* Do what the call before did, which used the same memory: 1, 0 if Python has to do it, -1 with an error. */
static int
guard_repeat(Guard *self, Target *target, PyObject **arrays, const uintptr_t *addresses)
{
    Launcher *launcher = (Launcher *)target->launcher;
    Launch *what;
    if (launcher == NULL || memcmp(self->addresses, addresses, (size_t)self->arrays * sizeof *addresses) != 0
        || !guard_takes(self, arrays, target->kept))
        return 0;
    Py_BEGIN_CRITICAL_SECTION(launcher);
    what = (Launch *)Py_XNewRef(launcher->target);
    Py_END_CRITICAL_SECTION();
    if (what == NULL)
        return 0;
    int done = PyDict_GET_SIZE(self->captures) != 0 ? 0 : guard_launch(self, target, what, addresses);
    Py_DECREF(what); /* by now it may be the last that holds the executable */
    return done;
}

static void
target_hold(Target *target)
{
    Py_XINCREF(target->where);
    Py_XINCREF(target->questions);
    Py_XINCREF(target->launcher);
    Py_XINCREF(target->result);
    Py_XINCREF(target->kept);
}

static void
target_let_go(Target *target)
{
    Py_XDECREF(target->where);
    Py_XDECREF(target->questions);
    Py_XDECREF(target->launcher);
    Py_XDECREF(target->result);
    Py_XDECREF(target->kept);
}

/* Return a list of the arrays, and of what stands for the stream. */
static PyObject *
arrays_and(PyObject *where, PyObject **arrays, Py_ssize_t count)
{
    PyObject *found = PyList_New(count + 1);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++)
        PyList_SET_ITEM(found, i, Py_NewRef(arrays[i]));
    if (found != NULL)
        PyList_SET_ITEM(found, count, Py_NewRef(where));
    return found;
}

static PyObject *
guard_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Guard *self = (Guard *)op;
    PyObject *arrays[MOST_ARRAYS], *answer;
    uintptr_t addresses[MOST_ARRAYS];
    Target target;
    if (PyVectorcall_NARGS(count) != 2 || names != NULL || !PyTuple_CheckExact(args[0])
        || !PyDict_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a guard takes a tuple and a dict; pass args and kwargs.");
        return NULL;
    }
    if (PyDict_GET_SIZE(self->captures) != 0 || !guard_fits(self, args[0], args[1], arrays, addresses))
        Py_RETURN_NONE;
    Py_BEGIN_CRITICAL_SECTION(self);
    target = self->target;
    target_hold(&target);
    Py_END_CRITICAL_SECTION();
    int ready = target_is_ready(&target), done = ready ? guard_repeat(self, &target, arrays, addresses) : 0;
    if (done == 0)
        answer = arrays_and(ready ? target.where : Py_None, arrays, self->arrays);
    else
        answer = done > 0 ? Py_NewRef(target.result) : NULL;
    target_let_go(&target);
    return answer;
}
