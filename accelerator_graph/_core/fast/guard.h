/* Guard: tells whether a call is like the one before, and repeats that if nothing has moved. Part of _fast.c. */

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
    PyObject *result;   /* NULL, or what repeated calls return, in a tuple */
    PyObject *finish;   /* NULL, or takes the list of the arrays, and returns that */
    Patches *patches;   /* NULL: no call with arrays elsewhere is repeated */
    PyObject *user;     /* NULL, or the framework's stream, which arrays are told that they are used on */
    PyObject *kept;     /* NULL, or weak references to the arrays of the latest call, which have been told */
} Target;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *captures; /* a dict: as long as it holds anything, no call is like another */
    Lock *lock;         /* of the function: held for what is below */
    PyObject *modes;    /* a tuple of questions, each a callable, its arguments and the answer */
    PyObject *grad;     /* "requires_grad" */
    PyObject *record;   /* "record_stream" */
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
