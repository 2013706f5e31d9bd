"""The rows of the benchmark, in the order of the table. Each is a module with `measure(bench)`."""

ORDER = (
    "start",
    "first",
    "crowd",
    "explain",
    "library",
    "cpu",
    "compile",
    "files",
    "listener",
    "stream",
    "proxy",
    "trace",
    "workspace",
    "memory",
    "decide",
    "plan",
)

# Needs a look at processes that their own user may not look at: runs beside the ordinary user when root measures.
OBSERVERS = ("memory",)
