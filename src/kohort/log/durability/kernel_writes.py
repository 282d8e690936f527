"""Has the kernel write on its own, without a thread, and signal the end through a descriptor (Linux's io_submit).

A thread that writes needs the interpreter's lock before and after each call, and takes it from the loop: for the
rounds of the journal that was a fifth of the loop's time when it was busy. Here the loop submits the write with one
call, which keeps the lock, and a descriptor becomes readable when the write is on disk.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from struct import Struct

_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""The numbers of the system calls io_setup, io_destroy, io_getevents, io_submit: libc has no functions for them."""
_WRITE, _TELL = 1, 1  # IOCB_CMD_PWRITE, IOCB_FLAG_RESFD
_REQUEST = Struct("<QIIHhIQQqQII")  # struct iocb
_EVENT = Struct("<QQqq")  # struct io_event


class KernelWriter:
    """Writes one piece of memory at a time. The descriptor `ready` is readable when the write is done."""

    __slots__ = (
        "_context",
        "_destroy",
        "_event",
        "_get",
        "_keeping",
        "_letting",
        "_list",
        "_request",
        "_submit",
        "ready",
    )

    def __init__(self) -> None:
        """Sets up a context of the kernel; OSError if this system does not have io_submit."""
        numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
        if numbers is None:
            raise OSError(
                f"the numbers of the system calls for io_submit are not known on {platform.machine()}"
            )
        setup, self._destroy, self._get, self._submit = numbers
        self._keeping = ctypes.PyDLL(None, use_errno=True).syscall  # with the interpreter's lock
        self._letting = ctypes.CDLL(None, use_errno=True).syscall  # without: it waits
        for call in (self._keeping, self._letting):
            call.argtypes, call.restype = (ctypes.c_long,) * 6, ctypes.c_long
        self._request = (ctypes.c_char * _REQUEST.size)()
        self._list = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = (ctypes.c_char * _EVENT.size)()
        context = ctypes.c_ulong(0)
        _checked(self._keeping(setup, 1, ctypes.addressof(context), 0, 0, 0))
        self._context = context.value
        self.ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def submit(self, fd: int, address: int, length: int, position: int) -> None:
        """Begins to write memory, which must stay where it is until the write is done.

        `fd` must be opened with O_DIRECT and O_DSYNC: else the kernel would write before this call returns. After an
        OSError nothing was begun.
        """
        _REQUEST.pack_into(
            self._request, 0, 0, 0, 0, _WRITE, 0, fd, address, length, position, 0, _TELL, self.ready
        )
        _checked(self._keeping(self._submit, self._context, 1, ctypes.addressof(self._list), 0, 0))

    def result(self, *, wait: bool = False) -> int | None:
        """Returns how many bytes were written, or the negative number of an error; None if it is not done yet."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            pass  # a caller that waits may be faster than the signal; the next look then finds nothing
        call = self._letting if wait else self._keeping
        event = ctypes.addressof(self._event)
        while True:
            try:
                found = _checked(call(self._get, self._context, int(wait), 1, event, 0))
                break
            except InterruptedError:  # by a signal
                continue
        return int(_EVENT.unpack_from(self._event)[2]) if found else None

    def close(self) -> None:
        _checked(self._keeping(self._destroy, self._context, 0, 0, 0, 0))
        os.close(self.ready)


def _checked(returned: int) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return returned
