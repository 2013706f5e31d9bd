"""pid 1's loop of a traced run: look at each call, let it go on, tell the supervisor what was denied.

Calls that make names while denies for new names are in force are judged and performed as always (`listener`); all
others are only looked at. Trouble in here ends the run: nothing goes on unseen.
"""

from __future__ import annotations

import select
import sys

from sbx.kernel import process
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.watch import SHORT, Watcher
from sbx.launch.attend import read_signals
from sbx.launch.inside import COUNTED, DENIED
from sbx.launch.observe import Observer
from sbx.model.verdict import residue_allows

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from sbx.launch.listener import Serving
    from sbx.launch.observe import Record

AT_FDCWD = 0xFFFFFF9C
WORD = 0xFFFFFFFF
EPERM, EACCES = 1, 13
QUIET_MS = 50  # without a call for that long, what was found is told
BATCH = 32  # denials in one message
NUMBERS_APART = 4096
AF_UNIX = b"\x01\x00"
# Operations that may need nothing but to read: flags with which they need more, and flags with which the last name
# is not followed. Opening with O_CREAT or O_TMPFILE is among the former, so what `serving` performs is never plain.
READING = {
    "open": (3 | os.O_CREAT | os.O_TRUNC | 0o20000000, os.O_NOFOLLOW),
    "stat": (0, 0x100),
    "lstat": (0, 0),
    "readlink": (0, 0),
    "access": (3, 0),
}
STAYS = ("lstat", "readlink")
SPECIAL = (b"", b".", b"..")
_UNKNOWN = object()


class Tracing:
    """`trace` is the plan's part: the judge, whether to note needs instead of denials, the rows of kernel.path_calls by
    number, and which of those calls `serving` makes itself (argument and mask, -1 for always)."""

    def __init__(
        self,
        listener: int,
        trace: tuple[Any, ...],
        serving: Serving | None,
        tell: Callable[[tuple[Any, ...]], None],
    ) -> None:
        judge, learning, self.calls, performed = trace
        self.watcher = Watcher(listener)
        self.observer = Observer(judge, learning=learning)
        self.serving = serving
        self.performed: dict[int, tuple[int, int]] = performed if serving is not None else {}
        self.tell = tell
        self.unseen = 0  # calls whose arguments could not be read
        self.seen = False
        self._cwd: dict[int, bytes] = {}
        self._newest = 0
        self._told: list[Record] = []

    def loop(self, numbers: tuple[int, ...], on_signal: Callable[[int], None]) -> NoReturn:
        """As `attend`: the signals are blocked since before the fork, `on_signal` ends the process."""
        signal_fd = process.signalfd(numbers)
        listener_fd = self.watcher.descriptor
        poll = select.poll()
        poll.register(signal_fd, select.POLLIN)
        poll.register(listener_fd, select.POLLIN)
        serve = self.server()
        records, wait, one_call = self.observer.records, poll.poll, [(listener_fd, select.POLLIN)]
        while True:
            ready = wait(QUIET_MS if len(records) > len(self._told) else None)
            if ready == one_call:
                serve()
                continue
            if not ready:
                self.report()
            for descriptor, event in ready:
                if descriptor == signal_fd:
                    self.report()
                    self._count()
                    for at in read_signals(signal_fd):
                        on_signal(at)
                elif event & select.POLLIN:
                    serve()
                else:  # POLLHUP: nobody is under the filter any more
                    poll.unregister(descriptor)

    def server(self) -> Callable[[], None]:
        """What answers one notification. A closure: this runs for every call of the whole tree."""
        event, receive, let_through = self.watcher.event, self.watcher.receive, self.watcher.let_through
        text, memory, pread = self.watcher.text, self.watcher.memory, os.pread
        known, cwd, fsdecode, readlink = self.observer.known, self._cwd, os.fsdecode, os.readlink
        performed, look, base_of, calls = self.performed, self._look, self._base, self.calls
        changing, forget_links = self.observer.changing, self.observer.forget_links
        entrances, entrance, remember = self.observer.entrances, self.observer.entrance, self.observer.remember
        # Most calls need to read one file, in a folder where they may: for them nothing else is run.
        plain = {
            number: (row[1][0][0] + 4, row[1][0][1] + 4, row[2] + 4, row[3], *READING[row[0]], row[0] in STAYS)
            for number, row in calls.items()
            if row[0] in READING and performed.get(number, (-2, 0))[0] != -1
        }

        def serve() -> None:
            if not receive():
                return
            pid, number = event[1] & WORD, event[2] & WORD
            if changing and pid in changing:  # it has happened by now
                changing.discard(pid)
                forget_links()
            row = plain.get(number)
            try:
                if row is not None:
                    directory, at, flags_at, mask, needs_more, no_follow, stays = row
                    flags = event[flags_at] & mask
                    if not flags & needs_more:
                        try:
                            path = pread(memory[pid], SHORT, event[at])
                            path = path[: path.index(0)]
                        except (KeyError, OSError, ValueError, OverflowError):
                            path = text(pid, event[at])
                            self.seen = True
                        if path[:1] == b"/":
                            base = b""
                        elif directory == 3 or event[directory] & WORD == AT_FDCWD:
                            base = cwd.get(pid) or base_of(pid, AT_FDCWD)
                        else:
                            base = base_of(pid, event[directory])
                        call = (number, flags, base, path)
                        record = known.get(call, _UNKNOWN)
                        if record is None:
                            let_through()
                            return
                        head, _, name = path.rpartition(b"/")
                        if record is _UNKNOWN and name not in SPECIAL:
                            found = entrances.get((base, head)) or entrance(base, head)
                            if found is not None:
                                folder, left = found
                                if left is None or residue_allows(left, fsdecode(name)):
                                    if not (stays or flags & no_follow):
                                        try:
                                            readlink(folder + name)
                                            found = None  # it leads elsewhere
                                        except OSError:
                                            pass
                                    if found is not None:
                                        remember(call, None)
                                        let_through()
                                        return
                row = calls.get(number)
                if row is not None:
                    look(pid, number, row, event)
            except OSError as error:
                if self.seen and error.errno in (EPERM, EACCES):
                    self.unseen += 1
            judged = performed.get(number)
            if judged is not None and (judged[0] < 0 or event[4 + judged[0]] & judged[1]):
                self.serving.answer(event[0], pid, number, tuple(event[4:10]))  # type: ignore[union-attr]
            else:
                let_through()

        return serve

    def _look(self, pid: int, number: int, row: tuple[str, Any, int, int], event: Any) -> None:
        operation, paths, flags_at, mask = row
        observer = self.observer
        flags = event[4 + flags_at] & mask if flags_at >= 0 else 0
        if len(paths) == 1:
            directory, at = paths[0]
            if operation == "connect" or operation == "bind":
                address = self.watcher.data(pid, event[4 + at], min(flags, 128))
                path = address[2:].split(b"\0", 1)[0] if address[:2] == AF_UNIX else b""
                flags = 0
            else:
                path = self.watcher.text(pid, event[4 + at])
            self.seen = True
            if not path:
                return
            # 47 is a slash: the path starts nowhere but at the root.
            base = b"" if path[0] == 47 else self._base(pid, AT_FDCWD if directory < 0 else event[4 + directory])
            record = observer.known.get((number, flags, base, path), _UNKNOWN)
            if record is _UNKNOWN:
                record = observer.first(number, operation, flags, base, path, pid)
            if record is not None:
                record.count += 1  # type: ignore[attr-defined]
            if operation == "chdir":
                self._cwd.clear()
            elif operation == "execute":
                self._cwd.pop(pid, None)  # a new process, perhaps with a number that was used before
                self.watcher.forget(pid)
        elif paths:
            absolute = [self._absolute(pid, directory, at, event) for directory, at in paths]
            if all(absolute):
                two = observer.link if operation == "link" else observer.rename
                for each in two(absolute[0], absolute[1], flags, pid):
                    each.count += 1
        else:  # fchdir
            self._cwd.clear()

    def _absolute(self, pid: int, directory: int, at: int, event: Any) -> bytes:
        path = self.watcher.text(pid, event[4 + at])
        if not path or path[0] == 47:
            return path
        return self._base(pid, AT_FDCWD if directory < 0 else event[4 + directory]) + b"/" + path

    def _base(self, pid: int, directory: int) -> bytes:
        """Where relative paths of this thread start."""
        directory &= 0xFFFFFFFF
        if directory != AT_FDCWD:
            return os.readlink(b"/proc/%d/fd/%d" % (pid, directory))
        found = self._cwd.get(pid)
        if found is None:
            # Far below the newest, numbers may have started anew. Threads of one process take turns closer by.
            if pid < self._newest - NUMBERS_APART or len(self._cwd) >= NUMBERS_APART:
                self._cwd.clear()
                self._newest = 0
            self._newest = max(pid, self._newest)
            found = self._cwd[pid] = os.readlink(b"/proc/%d/cwd" % pid)
        return found

    def report(self) -> None:
        """Tell what is new, in bounded messages."""
        records = list(self.observer.records.values())
        new = records[len(self._told) :]
        for start in range(0, len(new), BATCH):
            self.tell((DENIED, tuple(each.told for each in new[start : start + BATCH])))
        self._told = records

    def _count(self) -> None:
        """How often each, calls that could not be seen, records that were left out."""
        counts = tuple(each.count for each in self._told)
        self.tell((COUNTED, counts, self.unseen, self.observer.left_out))
