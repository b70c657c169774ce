/* Replays without a line of Python: a vendor's launch function, called with the handles of an executable
 * and of a stream. What is out of the ordinary is left to a callable in Python: a capture under way, a
 * graph that was reset, another thread that launches the same executable, an error.
 * Guard does the same for the calls of a graphed function, and Watch for the events of a capture that is
 * diagnosed. `call_each` reads a graph, Ask and CaptureInfo ask for numbers. Relaxed lets a thread make
 * calls that a capture does not permit.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030D0000 /* the GIL is enough there */
#define Py_BEGIN_CRITICAL_SECTION(op) {
#define Py_END_CRITICAL_SECTION() }
#endif

/* As in `extension.py`. Raise both whenever Python can't work with the extension that was built before. */
#define VERSION 6

typedef int (*launch_function)(void *executable, void *stream);
typedef int (*current_function)(void **context);
typedef int (*capturing_function)(void *stream, int *status);

#include "object.h"
#include "lock.h"
#include "patches.h"
#include "launch.h"
#include "layout.h"
#include "follower.h"
#include "method.h"
#include "guard.h"
#include "repeat.h"
#include "guard_type.h"
#include "calls.h"
#include "ask.h"
#include "relaxed.h"
#include "watch.h"
#if PY_VERSION_HEX >= 0x030C0000
#include "watch_monitoring.h"
#else
#include "watch_tracing.h"
#endif
#include "watch_type.h"

#define OBJECT (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE)
#define CALLABLE (OBJECT | Py_TPFLAGS_HAVE_VECTORCALL)
#define SECTION (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION)
#define NAME(type) "accelerator_graph._core._fast." #type
#define SPEC(type, struct, flags, slots) {NAME(type), sizeof(struct), 0, flags, slots}

static PyType_Spec specs[TYPES] = {
    [LOCK] = SPEC(Lock, Lock, OBJECT, lock_slots),
    [LAUNCH] = SPEC(Launch, Launch, OBJECT, launch_slots),
    [LAUNCHER] = SPEC(Launcher, Launcher, CALLABLE, launcher_slots),
    [PATCHES] = SPEC(Patches, Patches, OBJECT, patches_slots),
    [RELAXED] = SPEC(Relaxed, Relaxed, SECTION, relaxed_slots),
    [FOLLOWER] = SPEC(Follower, Follower, CALLABLE, follower_slots),
    [METHOD] = SPEC(Method, Method, CALLABLE | Py_TPFLAGS_METHOD_DESCRIPTOR, method_slots),
    [GUARD] = SPEC(Guard, Guard, CALLABLE, guard_slots),
    [WATCH] = SPEC(Watch, Watch, OBJECT, watch_slots),
    [ASK] = SPEC(Ask, Ask, CALLABLE, ask_slots),
    [CAPTURE_INFO] = SPEC(CaptureInfo, Ask, CALLABLE, info_slots),
    [RELAXING] = SPEC(Relaxing, Relaxing, CALLABLE, relaxing_slots),
};

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    for (int i = 0; i < TYPES; i++) {
        state->types[i] = (PyTypeObject *)PyType_FromModuleAndSpec(module, &specs[i], NULL);
        if (state->types[i] == NULL || PyModule_AddType(module, state->types[i]) < 0)
            return -1;
    }
    if (PyModule_AddIntConstant(module, "version", VERSION) < 0)
        return -1;
    return PyModule_AddFunctions(module, calls_functions);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    for (int i = 0; i < TYPES; i++)
        Py_VISIT(state->types[i]);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    for (int i = 0; i < TYPES; i++)
        Py_CLEAR(state->types[i]);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "accelerator_graph._core._fast",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__fast(void)
{
    return PyModuleDef_Init(&module_definition);
}
