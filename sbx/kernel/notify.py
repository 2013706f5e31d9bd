"""seccomp user notification: the listener's calls, and what it needs to see of the process that is waiting."""

from __future__ import annotations

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import NUMBERS, Buffer, prototype, syscall

NOTIF_SIZE = 80  # u64 id, u32 pid, u32 flags, then seccomp_data: s32 nr, u32 arch, u64 ip, u64 args[6]
_RECV = 0xC0502100
_SEND = 0xC0182101
_ID_VALID = 0x40082102
_ADDFD = 0x40182103
_CONTINUE = 1
_IOCTL = NUMBERS["ioctl"]
_READV = NUMBERS["process_vm_readv"]

PAGE = 4096
PATH_MAX = 4096
SHORT = 256  # most paths end before


class Listener:
    """One notification at a time, through buffers that are made once: between two calls of a busy compiler nothing of
    this process is left in the processor's caches, and each step of Python costs several times what it does in a loop.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._ioctl = prototype("lll")
        self._notif = Buffer(NOTIF_SIZE)
        self._event = self._notif.words()  # id, pid and flags, number and arch, -, six arguments
        self._memory = Buffer(PATH_MAX)
        self._bytes = self._memory.octets()
        vectors = Buffer(48)  # struct iovec: ours, and two of the caller's
        self._vectors = vectors.words()
        self._vectors[0] = self._memory.address
        self._readv = vectors.address, vectors.address + 16
        self._empty = memoryview(bytes(NOTIF_SIZE)).cast("Q")
        self._identity = Buffer(8)
        self._asked = self._identity.words()
        self._reply = Buffer(24)
        self._answer = self._reply.words()

    def receive(self) -> tuple[int, int, int, tuple[int, ...]] | None:
        """(id, thread, call number, arguments), or None when the caller is gone again."""
        event = self._event
        event[:] = self._empty  # the kernel insists
        try:
            syscall("ioctl(NOTIF_RECV)", _IOCTL, "lll", self.descriptor, _RECV, self._notif.address)
        except OSError as error:
            if error.errno in (2, 4):  # ENOENT: killed meanwhile; EINTR
                return None
            raise
        identity, thread, number, _, *arguments = event
        return identity, thread & 0xFFFFFFFF, number & 0xFFFFFFFF, tuple(arguments)

    def answer(self, identity: int, value: int = 0, error: int = 0) -> None:
        self._send(identity, value, -error & 0xFFFFFFFF)

    def let_through(self, identity: int) -> None:
        """Only where nothing is enforced by the answer: the kernel reads the arguments again."""
        self._send(identity, 0, _CONTINUE << 32)

    def _send(self, identity: int, value: int, error_and_flags: int) -> None:
        answer = self._answer
        answer[0], answer[1], answer[2] = identity, value, error_and_flags
        try:
            syscall("ioctl(NOTIF_SEND)", _IOCTL, "lll", self.descriptor, _SEND, self._reply.address)
        except OSError as error:
            if error.errno != 2:  # ENOENT: nobody waits any more
                raise

    def answer_with(self, identity: int, descriptor: int, flags: int) -> None:
        """Move our descriptor to the caller and let its call return that number.

        Not in one step (SECCOMP_ADDFD_FLAG_SEND): ours has to be closed before the caller goes on. It would keep a
        lock held, a pipe from ending, and a program that was just written from being executed (ETXTBSY).
        """
        # struct seccomp_notif_addfd: u64 id, u32 flags, u32 srcfd, u32 newfd, u32 newfd_flags
        request = self._answer
        request[0], request[1], request[2] = identity, descriptor << 32, (flags & os.O_CLOEXEC) << 32
        number, code = 0, 0
        try:
            number = syscall("ioctl(NOTIF_ADDFD)", _IOCTL, "lll", self.descriptor, _ADDFD, self._reply.address)
        except OSError as error:
            code = error.errno or 5  # EMFILE: as the call itself would say
        finally:
            os.close(descriptor)
        self.answer(identity, value=number, error=code)

    def still_waiting(self, identity: int) -> bool:
        """Is it still the same call? Its pid may have been used again since."""
        self._asked[0] = identity
        result: int = self._ioctl(_IOCTL, self.descriptor, _ID_VALID, self._identity.address)
        return result != -1

    def read(self, pid: int, address: int, count: int) -> bytes:
        """Up to `count` bytes of the caller's memory; shorter where it ends. OSError EFAULT where there is none."""
        count = min(count, PATH_MAX)
        first = min(count, PAGE - address % PAGE)  # what is after a page border may not exist
        vectors = self._vectors
        vectors[1], vectors[2], vectors[3] = count, address, first
        number = 1
        if first < count:
            # The last address there is has no page behind it; what the kernel answers there is right.
            vectors[4], vectors[5] = (address + first) & 0xFFFFFFFFFFFFFFFF, count - first
            number = 2
        ours, theirs = self._readv
        got = syscall("process_vm_readv", _READV, "llllll", pid, ours, 1, theirs, number, 0)
        return bytes(self._bytes[:got])

    def read_path(self, pid: int, address: int) -> bytes:
        """A path argument. OSError EFAULT, ENAMETOOLONG as the kernel would say."""
        data = self.read(pid, address, SHORT)
        end = data.find(0)
        if end < 0:
            data = self.read(pid, address, PATH_MAX)
            end = data.find(0)
            if end < 0:
                raise OSError(36 if len(data) == PATH_MAX else 14, "path")
        return data[:end]
