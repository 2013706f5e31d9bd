"""seccomp user notification: the listener's calls, and what it needs to see of the process that is waiting."""

from __future__ import annotations

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import NUMBERS, Buffer, syscall

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


class Listener:
    """One notification at a time, through buffers that are made once."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._notif = Buffer(NOTIF_SIZE)
        self._memory = Buffer(PATH_MAX + PAGE)
        self._local = Buffer(16)
        self._remote = Buffer(32)
        self._empty = bytes(NOTIF_SIZE)

    def receive(self) -> tuple[int, int, int, tuple[int, ...]] | None:
        """(id, thread, call number, arguments), or None when the caller is gone again."""
        self._notif.write(self._empty)
        try:
            syscall("ioctl(NOTIF_RECV)", _IOCTL, "lll", self.descriptor, _RECV, self._notif.address)
        except OSError as error:
            if error.errno in (2, 4):  # ENOENT: killed meanwhile; EINTR
                return None
            raise
        data = self._notif.read()
        number = int.from_bytes(data[16:20], "little", signed=True)
        arguments = tuple(int.from_bytes(data[at : at + 8], "little") for at in range(32, 80, 8))
        return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:12], "little"), number, arguments

    def answer(self, identity: int, value: int = 0, error: int = 0) -> None:
        reply = identity.to_bytes(8, "little") + value.to_bytes(8, "little", signed=True)
        self._send(reply + (-error).to_bytes(4, "little", signed=True) + bytes(4))

    def let_through(self, identity: int) -> None:
        """Only where nothing is enforced by the answer: the kernel reads the arguments again."""
        self._send(identity.to_bytes(8, "little") + bytes(12) + _CONTINUE.to_bytes(4, "little"))

    def _send(self, reply: bytes) -> None:
        try:
            syscall("ioctl(NOTIF_SEND)", _IOCTL, "llz", self.descriptor, _SEND, reply)
        except OSError as error:
            if error.errno != 2:  # ENOENT: nobody waits any more
                raise

    def answer_with(self, identity: int, descriptor: int, flags: int) -> None:
        """Move our descriptor to the caller and let its call return that number.

        Not in one step (SECCOMP_ADDFD_FLAG_SEND): ours has to be closed before the caller goes on. It would keep a
        lock held, a pipe from ending, and a program that was just written from being executed (ETXTBSY).
        """
        request = (
            identity.to_bytes(8, "little")
            + bytes(4)
            + descriptor.to_bytes(4, "little")
            + bytes(4)
            + (flags & os.O_CLOEXEC).to_bytes(4, "little")
        )
        number, code = 0, 0
        try:
            number = syscall("ioctl(NOTIF_ADDFD)", _IOCTL, "llz", self.descriptor, _ADDFD, request)
        except OSError as error:
            code = error.errno or 5  # EMFILE: as the call itself would say
        finally:
            os.close(descriptor)
        self.answer(identity, value=number, error=code)

    def still_waiting(self, identity: int) -> bool:
        """Is it still the same call? Its pid may have been used again since."""
        try:
            syscall("ioctl(NOTIF_ID_VALID)", _IOCTL, "llz", self.descriptor, _ID_VALID, identity.to_bytes(8, "little"))
        except OSError:
            return False
        return True

    def read(self, pid: int, address: int, count: int) -> bytes:
        """Up to `count` bytes of the caller's memory; shorter where it ends. OSError EFAULT where there is none."""
        count = min(count, PATH_MAX)
        self._local.write(self._memory.address.to_bytes(8, "little") + count.to_bytes(8, "little"))
        first = min(count, PAGE - address % PAGE)  # what is after a page border may not exist
        pieces = address.to_bytes(8, "little") + first.to_bytes(8, "little")
        number = 1
        if first < count:
            pieces += (address + first).to_bytes(8, "little") + (count - first).to_bytes(8, "little")
            number = 2
        self._remote.write(pieces)
        got = syscall(
            "process_vm_readv", _READV, "llllll", pid, self._local.address, 1, self._remote.address, number, 0
        )
        return self._memory.read(got)

    def read_path(self, pid: int, address: int) -> bytes:
        """A path argument. OSError EFAULT, ENAMETOOLONG as the kernel would say."""
        data = self.read(pid, address, PATH_MAX)
        end = data.find(b"\0")
        if end < 0:
            raise OSError(36 if len(data) == PATH_MAX else 14, "path")
        return data[:end]
