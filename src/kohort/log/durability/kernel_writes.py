"""Writes that the kernel carries out by itself and then tells of (io_submit of Linux).

A thread that writes wants the interpreter's lock before and after each call, and takes it from the loop: for the rounds
of the journal that was a fifth of the loop's time when it was busy. Here the loop hands the write over with one call,
which does not let go of the lock, and hears through a descriptor that it is on disk. No thread has a part in it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from struct import Struct

_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Of the system calls io_setup, io_destroy, io_getevents, io_submit; libc has no names for them."""
_WRITE, _TELL = 1, 1  # IOCB_CMD_PWRITE, IOCB_FLAG_RESFD
_REQUEST = Struct("<QIIHhIQQqQII")  # struct iocb
_EVENT = Struct("<QQqq")  # struct io_event


class KernelWriter:
    """One write at a time. `ready` can be read when it is done."""

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
        """OSError if this system has no such thing."""
        numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
        if numbers is None:
            raise OSError("the system calls for it are not known")
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
        """Begins a write of memory that stays where it is. `fd` is past the page cache and synced: O_DIRECT, O_DSYNC;

        of others the kernel would write before this returns. After an OSError nothing was begun.
        """
        _REQUEST.pack_into(
            self._request, 0, 0, 0, 0, _WRITE, 0, fd, address, length, position, 0, _TELL, self.ready
        )
        _checked(self._keeping(self._submit, self._context, 1, ctypes.addressof(self._list), 0, 0))

    def result(self, *, wait: bool = False) -> int | None:
        """How many bytes were written, or the negative number of an error; None if it is not done yet."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            pass  # who waits may be sooner than the kernel tells: then somebody looks once more, and finds nothing
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
