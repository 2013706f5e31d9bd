#!/bin/sh
# What sbx is for, in a minute: a build that works, and what the same build cannot do.
# Everything happens in a temporary folder that is removed at the end. usage: demo.sh (sbx on PATH)
set -u

place=$(mktemp -d "${TMPDIR:-/tmp}/sbx-demo.XXXXXX") || exit 1
trap 'rm -rf "$place"' EXIT
HOME=$place/home
export HOME
unset XDG_CONFIG_HOME XDG_CACHE_HOME XDG_STATE_HOME XDG_DATA_HOME SBX_TRUST_WORKSPACE
mkdir -p "$HOME/.ssh" "$place/project/src"
echo "a private key" >"$HOME/.ssh/id_rsa"
cd "$place/project" || exit 1
echo "all: ; @mkdir -p build && cat src/*.txt > build/all.txt && echo built: && cat build/all.txt" >Makefile
echo "hello from the sandbox" >src/hello.txt
echo 'import socket, sys
try: socket.create_connection(("192.0.2.1", 80), 3)
except OSError as error: sys.exit(str(error))' >connect.py
echo "API_TOKEN=not-for-builds" >.env

failed=0
step() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || step() { printf '\n%s\n' "$1"; }

# show WANTED COMMAND...: run it, and remember when it ends otherwise than it should (allowed or denied).
show() {
    wanted=$1
    shift
    printf '$'
    for word in "$@"; do
        case $word in *[!A-Za-z0-9_./:=+-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$@"
    status=$?
    if [ "$wanted" = allowed ] && [ $status -ne 0 ]; then failed=1; fi
    # 125 and above are sbx's own: a sandbox that did not come about denies nothing.
    if [ "$wanted" = denied ] && { [ $status -eq 0 ] || [ $status -ge 124 ]; }; then failed=1; fi
}

step "A policy that fits this folder:"
show allowed sbx init

step "The build works:"
show allowed sbx run --profile build -- make

step "Reading a secret of yours is denied:"
show denied sbx run --profile build -- cat "$HOME/.ssh/id_rsa"
show denied sbx run --profile build -- cat .env

step "Which rule was it? --trace tells for certain:"
show denied sbx run --profile build --trace -- cat "$HOME/.ssh/id_rsa" .env

step "So are writing outside, changing the sources, and the network:"
show denied sbx run --profile build -- touch "$HOME/was-here"
show denied sbx run --profile build -- sh -c 'echo changed > src/hello.txt'
show denied sbx run --profile build -- python3 connect.py

step "Why? Each answer names the rule, its file and line, and what would allow it:"
show denied sbx explain --profile build --modify src/hello.txt "$HOME/.ssh/id_rsa"

if [ -e "$HOME/was-here" ] || [ "$(cat src/hello.txt)" != "hello from the sandbox" ]; then
    failed=1
fi
if [ $failed -ne 0 ]; then
    printf '\nSomething did not go as it should: "sbx doctor" says what this machine can enforce.\n' >&2
fi
exit $failed
