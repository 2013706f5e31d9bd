#!/bin/sh
# The `sbx` command. Finds the Python it was installed for and starts it isolated and without the site module, which
# costs more than a whole sandbox and which a run from a stored plan never needs.
if [ -d /dev/fd/0 ] || [ -d /dev/fd/1 ] || [ -d /dev/fd/2 ]; then # Python would not start
  echo "sbx: standard input, output or error is a directory; redirect it from or to a file" >&2
  case $1 in run | sh) exit 125 ;; *) exit 2 ;; esac
fi
self=$0
while [ -L "$self" ]; do # such as pipx's link in ~/.local/bin
  link=$(readlink "$self") || break
  case $link in
  /*) self=$link ;;
  *) self=${self%/*}/$link ;;
  esac
done
bin=${self%/*}
run_compiled='import marshal, posix, sys
__file__ = sys.argv.pop(1)
source = sys.argv.pop(1)
try:
    file = posix.open(__file__, 0)
    code = posix.read(file, 65536)
    posix.close(file)
    if code[:4] != sys.modules["_frozen_importlib_external"].MAGIC_NUMBER: raise ValueError
    code = marshal.loads(code[16:])
except (OSError, ValueError, EOFError, TypeError):
    __file__ = source
    with open(source, "rb") as file: code = compile(file.read(), source, "exec")
exec(code)'
for package in "$bin"/../lib/python3*/site-packages/sbx "$bin"/../lib/python3*/dist-packages/sbx; do
  [ -f "$package/launch/console.py" ] || continue
  version=${package%/*/sbx}
  version=${version##*/}
  for python in "$bin/$version" "$bin/python3" "$version"; do
    case $python in */*) [ -x "$python" ] || continue ;; esac
    compiled=$package/launch/__pycache__/console.cpython-3${version#python3.}.pyc
    # Not as a file of its own: Python would look whether it is a zip archive.
    [ -f "$compiled" ] && exec "$python" -ISc "$run_compiled" "$compiled" "$package/launch/console.py" "$@"
    exec "$python" -IS "$package/launch/console.py" "$@"
  done
done
exec "$bin/python3" -m sbx "$@" # an editable installation
