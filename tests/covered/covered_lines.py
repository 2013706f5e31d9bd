"""Note every line of sbx that a process executes, also where no file can be written: as pid 1 of a sandbox, after the
pivot, in a process that ends with `_exit` or by SIGKILL.

Started before everything else, by a .pth file (see measure.py), in every Python whose environment names the map: one
byte for each line of the package, in a file that all processes share as memory. What is cloned or forked goes on
writing to it. Nothing of this is to be seen in sys.modules.
"""

import sys

VARIABLE = "COVERED_LINES"


def start(path: str) -> None:
    import marshal

    try:
        memory = _mapped(path)
    except OSError:
        return  # inside a sandbox, or as somebody else
    bases = marshal.loads(memory[int.from_bytes(memory[:8], "little") :])
    known = {}  # by id: hashing code objects is slow. The code is kept, so that no other gets its id

    def local_trace(code, base):
        missing = {line for _, _, line in code.co_lines() if line and not memory[base + line]}
        missing.discard(code.co_firstlineno)
        memory[base + code.co_firstlineno] = 1
        if not missing:
            return None

        def on_line(frame, event, argument):
            line = frame.f_lineno
            if line in missing:
                missing.discard(line)
                memory[base + line] = 1
                if not missing:
                    known[id(code)] = (code, None)
            return on_line

        return on_line

    def trace(frame, event, argument):
        code = frame.f_code
        try:
            return known[id(code)][1]
        except KeyError:
            pass
        base = bases.get(code.co_filename)
        if base is None:
            if code.co_name == "start" and code.co_filename.endswith("/threading.py"):
                sys.modules["threading"].settrace(trace)
            known[id(code)] = (code, None)
            return None
        found = local_trace(code, base)
        known[id(code)] = (code, found)
        return found

    _with_site()
    sys.settrace(trace)


def _mapped(path):
    """The file as memory, and no descriptor of it: the numbers of descriptors are part of some tests."""
    import mmap
    import os

    sys.modules.pop("mmap")
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if sys.version_info >= (3, 13):
            return mmap.mmap(descriptor, 0, trackfd=False)
        copy = os.dup(descriptor)
        os.close(copy)
        memory = mmap.mmap(descriptor, 0)
        os.close(copy)  # it makes one, of the same number
        return memory
    finally:
        os.close(descriptor)


def _with_site() -> None:
    """The library starts its launcher without the site module, which is what starts this, and without environment."""
    import os

    spawn = os.posix_spawn

    def posix_spawn(path, argv, env, **options):
        if len(argv) > 1 and argv[1] == "-IS":
            argv = [argv[0], "-I", *argv[2:]]
            env = {**env, VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else env
        return spawn(path, argv, env, **options)

    os.posix_spawn = posix_spawn
