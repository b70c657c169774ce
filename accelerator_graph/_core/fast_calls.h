/* Calls of a vendor's function for many objects, and the numbers of objects. Part of _fast.c. */

typedef int (*tell_function)(void *object, void *answer);
typedef int (*tell_of_function)(void *object, int which, void *answer);

enum { ANSWER_WORDS = 16 }; /* as in many_calls.py */

static void *const *
handles_in(PyObject *bytes)
{
    return (void *const *)PyBytes_AS_STRING(bytes);
}

/* Return the number of objects that were asked without an error; the code is the last one's. */
static Py_ssize_t
calls_make(void *function, int which, void *const *objects, Py_ssize_t count, PyObject *words, uint64_t *kept,
           int *code)
{
    Py_ssize_t i;
    *code = 0;
    for (i = 0; i < count; i++) {
        uint64_t answer[ANSWER_WORDS] = {0};
        *code = which < 0 ? ((tell_function)function)(objects[i], answer)
                          : ((tell_of_function)function)(objects[i], which, answer);
        if (*code != 0)
            break;
        for (Py_ssize_t n = 0; n < PyBytes_GET_SIZE(words); n++)
            *kept++ = answer[(unsigned char)PyBytes_AS_STRING(words)[n]];
    }
    return i;
}

static PyObject *
call_each(PyObject *Py_UNUSED(module), PyObject *args)
{
    void *function;
    PyObject *objects, *words, *found = NULL;
    int which = -1, code;
    if (!PyArg_ParseTuple(args, "O&SS|i:call_each", address, &function, &objects, &words, &which))
        return NULL;
    if (function == NULL) {
        PyErr_SetString(PyExc_ValueError, "function must be the address of a function, not 0.");
        return NULL;
    }
    for (Py_ssize_t n = 0; n < PyBytes_GET_SIZE(words); n++) {
        if ((unsigned char)PyBytes_AS_STRING(words)[n] >= ANSWER_WORDS) {
            PyErr_Format(PyExc_ValueError, "an answer has at most %d words.", ANSWER_WORDS);
            return NULL;
        }
    }
    Py_ssize_t row = PyBytes_GET_SIZE(words) * (Py_ssize_t)sizeof(uint64_t);
    Py_ssize_t count = PyBytes_GET_SIZE(objects) / (Py_ssize_t)sizeof(void *);
    if (row > 0 && count > PY_SSIZE_T_MAX / row)
        return PyErr_NoMemory();
    PyObject *kept = PyBytes_FromStringAndSize(NULL, count * row);
    if (kept == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    count = calls_make(function, which, handles_in(objects), count, words, (uint64_t *)PyBytes_AS_STRING(kept),
                       &code);
    Py_END_ALLOW_THREADS
    if (code == 0 || _PyBytes_Resize(&kept, count * row) == 0)
        found = Py_BuildValue("iO", code, kept);
    Py_XDECREF(kept);
    return found;
}

/* Where an object is in a table of twice as many places or more, which holds numbers from 1 on. */
static size_t
place_of(const uint32_t *table, size_t mask, void *const *objects, const void *object)
{
    size_t place = ((size_t)(uintptr_t)object >> 3) * 0x9E3779B1u;
    for (place ^= place >> 16;; place++) {
        uint32_t number = table[place & mask];
        if (number == 0 || objects[number - 1] == object)
            return place & mask;
    }
}

/* Write the number of each wanted object; return 0 if one is none of the objects. */
static int
numbers_find(uint32_t *table, size_t mask, void *const *objects, Py_ssize_t count, void *const *wanted,
             Py_ssize_t many, uint32_t *numbers)
{
    for (Py_ssize_t i = 0; i < count; i++)
        table[place_of(table, mask, objects, objects[i])] = (uint32_t)i + 1;
    for (Py_ssize_t i = 0; i < many; i++) {
        uint32_t number = table[place_of(table, mask, objects, wanted[i])];
        if (number == 0)
            return 0;
        numbers[i] = number - 1;
    }
    return 1;
}

static PyObject *
numbers_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *objects, *wanted;
    if (!PyArg_ParseTuple(args, "SS:numbers_of", &objects, &wanted))
        return NULL;
    Py_ssize_t count = PyBytes_GET_SIZE(objects) / (Py_ssize_t)sizeof(void *);
    Py_ssize_t many = PyBytes_GET_SIZE(wanted) / (Py_ssize_t)sizeof(void *);
    size_t places = 4;
    while (places < 2 * (size_t)count)
        places *= 2;
    uint32_t *table = (size_t)count < UINT32_MAX ? PyMem_Calloc(places, sizeof(uint32_t)) : NULL;
    if (table == NULL)
        return PyErr_NoMemory();
    PyObject *numbers = PyBytes_FromStringAndSize(NULL, many * (Py_ssize_t)sizeof(uint32_t));
    if (numbers != NULL
        && !numbers_find(table, places - 1, handles_in(objects), count, handles_in(wanted), many,
                         (uint32_t *)PyBytes_AS_STRING(numbers))) {
        Py_CLEAR(numbers);
        PyErr_SetString(PyExc_ValueError, "one of the wanted objects is not among the objects.");
    }
    PyMem_Free(table);
    return numbers;
}

static PyMethodDef calls_functions[] = {
    {"call_each", call_each, METH_VARARGS, NULL},
    {"numbers_of", numbers_of, METH_VARARGS, NULL},
    {NULL},
};
