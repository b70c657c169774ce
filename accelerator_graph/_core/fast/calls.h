/* Calls of a vendor's function for many objects, and the numbers of objects. Part of _fast.c. */

typedef int (*ask_function)(void *object, void *answer);
typedef int (*tell_of_function)(void *object, int which, void *answer);

enum { ANSWER_WORDS = 16, MOST_QUESTIONS = 4 }; /* the first as in raw_calls.py */

typedef struct {
    void *function;
    PyObject *words; /* bytes: which words of the answer are kept */
    int which;       /* what is asked for, if not negative */
} Question;

typedef struct {
    Question question[MOST_QUESTIONS];
    Py_ssize_t count;
    Py_ssize_t row; /* the words that are kept of an object */
    int other;      /* the code of an object that has no answers, if not 0 */
    int code;       /* of the last call */
} Questions;

static void *const *
handles_in(PyObject *bytes)
{
    return (void *const *)PyBytes_AS_STRING(bytes);
}

/* Ask about one object, and return the number of the question that failed. */
static Py_ssize_t
object_ask(Questions *all, void *object, uint64_t *kept)
{
    Py_ssize_t i;
    memset(kept, 0, (size_t)all->row * sizeof(uint64_t));
    for (i = 0; i < all->count; i++) {
        const Question *each = &all->question[i];
        uint64_t answer[ANSWER_WORDS] = {0};
        all->code = each->which < 0 ? ((ask_function)each->function)(object, answer)
                                    : ((tell_of_function)each->function)(object, each->which, answer);
        if (all->code != 0)
            break;
        for (Py_ssize_t n = 0; n < PyBytes_GET_SIZE(each->words); n++)
            *kept++ = answer[(unsigned char)PyBytes_AS_STRING(each->words)[n]];
    }
    if (i == 0 && all->code == all->other)
        all->code = 0;
    return i;
}

/* Return the number of objects that were asked without an error. */
static Py_ssize_t
objects_ask(Questions *all, void *const *objects, Py_ssize_t count, uint64_t *kept, Py_ssize_t *failed)
{
    Py_ssize_t i;
    for (i = 0; i < count; i++, kept += all->row) {
        *failed = object_ask(all, objects[i], kept);
        if (all->code != 0)
            break;
    }
    return i;
}

static int
questions_read(Questions *all, PyObject *questions)
{
    all->count = PyTuple_GET_SIZE(questions);
    if (all->count == 0 || all->count > MOST_QUESTIONS) {
        PyErr_Format(PyExc_ValueError, "there must be 1 to %d questions.", MOST_QUESTIONS);
        return 0;
    }
    for (Py_ssize_t i = 0; i < all->count; i++) {
        Question *each = &all->question[i];
        PyObject *item = PyTuple_GET_ITEM(questions, i);
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "a question must be a tuple.");
            return 0;
        }
        if (!PyArg_ParseTuple(item, "O&Si", address, &each->function, &each->words, &each->which))
            return 0;
        if (each->function == NULL) {
            PyErr_SetString(PyExc_ValueError, "function must be the address of a function, not 0.");
            return 0;
        }
        for (Py_ssize_t n = 0; n < PyBytes_GET_SIZE(each->words); n++) {
            if ((unsigned char)PyBytes_AS_STRING(each->words)[n] >= ANSWER_WORDS) {
                PyErr_Format(PyExc_ValueError, "an answer has at most %d words.", ANSWER_WORDS);
                return 0;
            }
        }
        all->row += PyBytes_GET_SIZE(each->words);
    }
    return 1;
}

static PyObject *
call_each(PyObject *Py_UNUSED(module), PyObject *args)
{
    Questions all = {.count = 0};
    PyObject *objects, *questions, *found = NULL;
    Py_ssize_t failed = 0;
    if (!PyArg_ParseTuple(args, "SO!|i:call_each", &objects, &PyTuple_Type, &questions, &all.other)
        || !questions_read(&all, questions))
        return NULL;
    Py_ssize_t row = all.row * (Py_ssize_t)sizeof(uint64_t);
    Py_ssize_t count = PyBytes_GET_SIZE(objects) / (Py_ssize_t)sizeof(void *);
    if (row > 0 && count > PY_SSIZE_T_MAX / row)
        return PyErr_NoMemory();
    PyObject *kept = PyBytes_FromStringAndSize(NULL, count * row);
    if (kept == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    count = objects_ask(&all, handles_in(objects), count, (uint64_t *)PyBytes_AS_STRING(kept), &failed);
    Py_END_ALLOW_THREADS
    if (all.code == 0 || _PyBytes_Resize(&kept, count * row) == 0)
        found = Py_BuildValue("inO", all.code, all.code == 0 ? 0 : failed, kept);
    Py_XDECREF(kept);
    return found;
}

static size_t
places_for(Py_ssize_t count)
{
    size_t places = 4;
    while (places < 2 * (size_t)count)
        places *= 2;
    return places;
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

/* Write the number of each wanted object; return 0 if one of them is not among the objects. */
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
    size_t places = places_for(count);
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

static PyObject *
distinct(PyObject *Py_UNUSED(module), PyObject *objects)
{
    if (!PyBytes_Check(objects))
        return PyErr_Format(PyExc_TypeError, "the objects must be bytes, not %R.", objects);
    Py_ssize_t count = PyBytes_GET_SIZE(objects) / (Py_ssize_t)sizeof(void *), found = 0;
    size_t places = places_for(count);
    uint32_t *table = (size_t)count < UINT32_MAX ? PyMem_Calloc(places, sizeof(uint32_t)) : NULL;
    PyObject *once = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(void *));
    if (table == NULL || once == NULL) {
        PyMem_Free(table);
        Py_XDECREF(once);
        return PyErr_NoMemory();
    }
    void **kept = (void **)PyBytes_AS_STRING(once);
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t *number = &table[place_of(table, places - 1, kept, handles_in(objects)[i])];
        if (*number == 0) {
            kept[found++] = handles_in(objects)[i];
            *number = (uint32_t)found;
        }
    }
    PyMem_Free(table);
    _PyBytes_Resize(&once, found * (Py_ssize_t)sizeof(void *));
    return once;
}

static PyMethodDef calls_functions[] = {
    {"call_each", call_each, METH_VARARGS, NULL},
    {"numbers_of", numbers_of, METH_VARARGS, NULL},
    {"distinct", distinct, METH_O, NULL},
    {NULL},
};
