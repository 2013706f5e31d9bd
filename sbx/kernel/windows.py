"""Windows calls, one small function each: jobs, tokens, processes. A failure raises with the call's name."""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, sizeof

from sbx.kernel import windows_types as win
from sbx.kernel.windows_types import BOOL, DWORD, HANDLE, SIZE_T

assert sys.platform == "win32"  # the structures are in windows_types, for everybody

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
_VOID = ctypes.c_void_p
_WCHARS = ctypes.c_wchar_p


def _bind(library: ctypes.WinDLL, name: str, result: type, *arguments: type) -> ctypes._NamedFuncPointer:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function  # type: ignore[no-any-return]


_CloseHandle = _bind(_kernel32, "CloseHandle", BOOL, HANDLE)
_CreateJobObjectW = _bind(_kernel32, "CreateJobObjectW", HANDLE, _VOID, _WCHARS)
_SetInformationJobObject = _bind(_kernel32, "SetInformationJobObject", BOOL, HANDLE, ctypes.c_int, _VOID, DWORD)
_QueryInformationJobObject = _bind(
    _kernel32, "QueryInformationJobObject", BOOL, HANDLE, ctypes.c_int, _VOID, DWORD, _VOID
)
_AssignProcessToJobObject = _bind(_kernel32, "AssignProcessToJobObject", BOOL, HANDLE, HANDLE)
_TerminateJobObject = _bind(_kernel32, "TerminateJobObject", BOOL, HANDLE, ctypes.c_uint)
_CreateIoCompletionPort = _bind(_kernel32, "CreateIoCompletionPort", HANDLE, HANDLE, HANDLE, SIZE_T, DWORD)
_GetQueuedCompletionStatus = _bind(_kernel32, "GetQueuedCompletionStatus", BOOL, HANDLE, _VOID, _VOID, _VOID, DWORD)
_GetCurrentProcess = _bind(_kernel32, "GetCurrentProcess", HANDLE)
_TerminateProcess = _bind(_kernel32, "TerminateProcess", BOOL, HANDLE, ctypes.c_uint)
_ResumeThread = _bind(_kernel32, "ResumeThread", DWORD, HANDLE)
_WaitForSingleObject = _bind(_kernel32, "WaitForSingleObject", DWORD, HANDLE, DWORD)
_GetExitCodeProcess = _bind(_kernel32, "GetExitCodeProcess", BOOL, HANDLE, _VOID)
_GenerateConsoleCtrlEvent = _bind(_kernel32, "GenerateConsoleCtrlEvent", BOOL, DWORD, DWORD)
_InitializeProcThreadAttributeList = _bind(
    _kernel32, "InitializeProcThreadAttributeList", BOOL, _VOID, DWORD, DWORD, _VOID
)
_UpdateProcThreadAttribute = _bind(
    _kernel32, "UpdateProcThreadAttribute", BOOL, _VOID, DWORD, SIZE_T, _VOID, SIZE_T, _VOID, _VOID
)
_DeleteProcThreadAttributeList = _bind(_kernel32, "DeleteProcThreadAttributeList", None, _VOID)  # type: ignore[arg-type]
_CreateProcessAsUserW = _bind(
    _advapi32, "CreateProcessAsUserW", BOOL,
    HANDLE, _WCHARS, _VOID, _VOID, _VOID, BOOL, DWORD, _VOID, _WCHARS, _VOID, _VOID,
)  # fmt: skip
_OpenProcessToken = _bind(_advapi32, "OpenProcessToken", BOOL, HANDLE, DWORD, _VOID)
_CreateRestrictedToken = _bind(
    _advapi32, "CreateRestrictedToken", BOOL, HANDLE, DWORD, DWORD, _VOID, DWORD, _VOID, DWORD, _VOID, _VOID
)
_ConvertStringSidToSidW = _bind(_advapi32, "ConvertStringSidToSidW", BOOL, _WCHARS, _VOID)
_SetTokenInformation = _bind(_advapi32, "SetTokenInformation", BOOL, HANDLE, ctypes.c_int, _VOID, DWORD)
_GetLengthSid = _bind(_advapi32, "GetLengthSid", DWORD, _VOID)
_LocalFree = _bind(_kernel32, "LocalFree", _VOID, _VOID)


def _failed(call: str, subject: str = "") -> OSError:
    error = ctypes.WinError(ctypes.get_last_error())
    error.filename = f"{call} {subject}".strip()
    return error


def close_handle(handle: int) -> None:
    if not _CloseHandle(handle):
        raise _failed("CloseHandle")


def create_job_object() -> int:
    handle = _CreateJobObjectW(None, None)
    if not handle:
        raise _failed("CreateJobObjectW")
    return int(handle)


def set_information_job_object(job: int, kind: int, information: ctypes.Structure) -> None:
    if not _SetInformationJobObject(job, kind, byref(information), sizeof(information)):
        raise _failed("SetInformationJobObject", type(information).__name__)


def query_information_job_object(job: int, kind: int, information: ctypes.Structure) -> None:
    """Fills `information`."""
    if not _QueryInformationJobObject(job, kind, byref(information), sizeof(information), None):
        raise _failed("QueryInformationJobObject", type(information).__name__)


def assign_process_to_job_object(job: int, process: int) -> None:
    if not _AssignProcessToJobObject(job, process):
        raise _failed("AssignProcessToJobObject")


def terminate_job_object(job: int, exit_code: int) -> None:
    if not _TerminateJobObject(job, exit_code):
        raise _failed("TerminateJobObject")


def completion_port(job: int) -> int:
    """A port on which the job reports its limits and its processes."""
    port = _CreateIoCompletionPort(HANDLE(-1), None, 0, 1)
    if not port:
        raise _failed("CreateIoCompletionPort")
    association = win.JOBOBJECT_ASSOCIATE_COMPLETION_PORT(job, port)
    try:
        set_information_job_object(job, win.JobObjectAssociateCompletionPortInformation, association)
    except OSError:
        close_handle(int(port))
        raise
    return int(port)


def get_queued_completion_status(port: int, timeout_ms: int) -> tuple[int, int] | None:
    """(message, pid), or None if there was none in time."""
    message, key, subject = DWORD(), SIZE_T(), ctypes.c_void_p()
    if not _GetQueuedCompletionStatus(port, byref(message), byref(key), byref(subject), timeout_ms):
        if ctypes.get_last_error() == win.WAIT_TIMEOUT:
            return None
        raise _failed("GetQueuedCompletionStatus")
    return message.value, subject.value or 0


def restricted_token() -> int:
    """This process's token without privileges and administrators' groups."""
    wanted = win.TOKEN_DUPLICATE | win.TOKEN_QUERY | win.TOKEN_ASSIGN_PRIMARY | win.TOKEN_ADJUST_DEFAULT
    own, made = HANDLE(), HANDLE()
    if not _OpenProcessToken(_GetCurrentProcess(), wanted, byref(own)):
        raise _failed("OpenProcessToken")
    try:
        flags = win.DISABLE_MAX_PRIVILEGE | win.LUA_TOKEN
        if not _CreateRestrictedToken(own, flags, 0, None, 0, None, 0, None, byref(made)):
            raise _failed("CreateRestrictedToken")
    finally:
        close_handle(own.value or 0)
    return made.value or 0


def set_integrity_level(token: int, sid_text: str) -> None:
    sid = ctypes.c_void_p()
    if not _ConvertStringSidToSidW(sid_text, byref(sid)):
        raise _failed("ConvertStringSidToSidW", sid_text)
    try:
        label = win.TOKEN_MANDATORY_LABEL(win.SID_AND_ATTRIBUTES(sid.value, win.SE_GROUP_INTEGRITY))
        size = sizeof(label) + _GetLengthSid(sid)
        if not _SetTokenInformation(token, win.TokenIntegrityLevel, byref(label), size):
            raise _failed("SetTokenInformation", sid_text)
    finally:
        _LocalFree(sid)


def create_process_suspended(
    token: int, program: str, command_line: str, environment: str, cwd: str, handles: tuple[int, int, int]
) -> tuple[int, int, int]:
    """(process, thread, pid) of a process that has not run an instruction, with just these three handles inherited."""
    inherited = (HANDLE * len(set(handles)))(*dict.fromkeys(handles))
    size = SIZE_T()
    _InitializeProcThreadAttributeList(None, 1, 0, byref(size))  # fails by design: it says how much room it needs
    attributes = ctypes.create_string_buffer(size.value)
    if not _InitializeProcThreadAttributeList(attributes, 1, 0, byref(size)):
        raise _failed("InitializeProcThreadAttributeList")
    try:
        kind = win.PROC_THREAD_ATTRIBUTE_HANDLE_LIST
        if not _UpdateProcThreadAttribute(attributes, 0, kind, inherited, sizeof(inherited), None, None):
            raise _failed("UpdateProcThreadAttribute")
        startup = win.STARTUPINFOEXW()
        startup.StartupInfo.cb = sizeof(startup)
        startup.StartupInfo.dwFlags = win.STARTF_USESTDHANDLES
        startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError = handles
        startup.lpAttributeList = ctypes.cast(attributes, _VOID)
        flags = (
            win.CREATE_SUSPENDED
            | win.CREATE_NEW_PROCESS_GROUP
            | win.CREATE_UNICODE_ENVIRONMENT
            | win.EXTENDED_STARTUPINFO_PRESENT
        )
        made = win.PROCESS_INFORMATION()
        line = ctypes.create_unicode_buffer(command_line)  # the call may write into it
        block = ctypes.create_unicode_buffer(environment)
        if not _CreateProcessAsUserW(
            token, program, line, None, None, True, flags, block, cwd, byref(startup), byref(made)
        ):
            raise _failed("CreateProcessAsUserW", program)
    finally:
        _DeleteProcThreadAttributeList(attributes)
    return made.hProcess, made.hThread, made.dwProcessId


def resume_thread(thread: int) -> None:
    if _ResumeThread(thread) == 0xFFFFFFFF:
        raise _failed("ResumeThread")


def terminate_process(process: int, exit_code: int) -> None:
    if not _TerminateProcess(process, exit_code):
        raise _failed("TerminateProcess")


def wait_for_single_object(handle: int, timeout_ms: int) -> bool:
    """True when it is signalled, False when the time is over."""
    answer = _WaitForSingleObject(handle, timeout_ms)
    if answer not in (win.WAIT_OBJECT_0, win.WAIT_TIMEOUT):
        raise _failed("WaitForSingleObject")
    return bool(answer == win.WAIT_OBJECT_0)


def get_exit_code_process(process: int) -> int:
    code = DWORD()
    if not _GetExitCodeProcess(process, byref(code)):
        raise _failed("GetExitCodeProcess")
    return code.value


def generate_console_ctrl_event(event: int, group: int) -> None:
    if not _GenerateConsoleCtrlEvent(event, group):
        raise _failed("GenerateConsoleCtrlEvent", str(group))
