"""What to do when the system has no more of something to give. Imported only after it has refused."""

import errno

SEE_DOCTOR = "run 'sbx doctor' to see what this machine allows"

REMEDIES = {
    errno.EAGAIN: "the user's limit of processes is reached ('ulimit -u'): end some, or allow more",
    errno.EMFILE: "more open files are needed than the caller's limit allows ('ulimit -n')",
    errno.ENFILE: "the machine has no more open files to give: end what holds them, then try again",
    errno.ENOMEM: "the machine has no memory left for it: end something, then try again",
    errno.ENOSPC: "a limit of the machine is used up: disk space, or its number of user namespaces",
}


def remedy_for(number: int) -> str:
    return REMEDIES.get(number, SEE_DOCTOR)
