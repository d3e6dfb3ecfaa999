"""How a compiled program asks Python for a sum: by XLA's interface for foreign functions, not by JAX's callbacks.

Python is handed the addresses of the words and of where their sum goes. `jax.pure_callback` makes JAX arrays of them,
and programs that use it are started by a slow path: together about 0.3 ms of processor time a sum, more than all the
rest. It is kept for versions of XLA with another interface, and for nodes that share a process: a program that waits
here holds one of XLA's threads, of which there are as many as processors, so that a few nodes would wait for ever.

If a sum fails, the program ends with an error; whoever started it knows what was raised.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Sum = Callable[[np.ndarray], np.ndarray]
"""From this agent's words `(words,)` of uint64 to the sum over all."""

_TARGET = "consilience_total"
_MAJOR = 0  # of the interface whose structures follow
_METADATA = 1
_INTERNAL = 13  # error
_sums: weakref.WeakValueDictionary[int, NetworkCall] = weakref.WeakValueDictionary()
_numbers = itertools.count()


class _Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("major", ctypes.c_int), ("minor", ctypes.c_int),
    ]  # fmt: skip


class _Metadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _Extension(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    ]  # fmt: skip


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("dtype", ctypes.c_int), ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]  # fmt: skip


class _Buffers(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p), ("buffers", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    ]  # fmt: skip


class _Failure(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    ]  # fmt: skip


class _Interface(ctypes.Structure):
    """What XLA offers, as far as it is used here."""

    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("fail", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Failure))),
    ]  # fmt: skip


class _Frame(ctypes.Structure):
    """A call, as far as it is read here."""

    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.POINTER(_Extension)), ("api", ctypes.POINTER(_Interface)),
        ("context", ctypes.c_void_p), ("stage", ctypes.c_int), ("given", _Buffers), ("wanted", _Buffers),
    ]  # fmt: skip


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))
def _called(frame: Any) -> int | None:
    """Answer XLA: which version this is when the function is registered, the sum in a program, or an error."""
    call = frame.contents
    if call.extension:
        said = call.extension.contents
        if said.type == _METADATA:
            said.metadata.contents.version.major, said.metadata.contents.version.minor = _version()
        return None
    try:
        which, given = _words(call.given.buffers[0]), _words(call.given.buffers[1])
        _words(call.wanted.buffers[0])[:] = _sums[int(which[0])].sum(given)
    except BaseException as error:  # an interrupt too: it would be lost here
        said = f"{type(error).__name__}: {error}".encode()
        return call.api.contents.fail(_Failure(ctypes.sizeof(_Failure), None, said, _INTERNAL))
    return None


def _words(buffer: Any) -> np.ndarray:
    """The words of a buffer, in place."""
    found = buffer.contents
    size = 8
    for axis in range(found.rank):
        size *= found.dims[axis]
    return np.frombuffer(memoryview((ctypes.c_char * size).from_address(found.data)), np.uint64)


@functools.cache
def _version() -> tuple[int, int]:
    """Of the interface that the installed XLA has, from the header that comes with it."""
    try:
        header = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    except OSError:
        return -1, -1
    major, minor = (re.search(rf"#define XLA_FFI_API_{part} (\d+)", header) for part in ("MAJOR", "MINOR"))
    return (int(major[1]), int(minor[1])) if major and minor else (-1, -1)


@functools.cache
def is_usable() -> bool:
    """Whether programs can call by XLA's interface here; it is then ready for them."""
    if _version()[0] != _MAJOR:
        return False
    try:
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(_called), platform="cpu", api_version=1)
    except Exception:  # whatever an XLA says to which this is strange
        return False
    return True


class NetworkCall:
    """A sum over the network that compiled programs can ask for, as long as this exists: `kept` sees to that.

    Args:
        sum: makes it.
        alone: whether nothing else in this process waits for the network.

    >>> twice = NetworkCall(lambda words: 2 * words, alone=True)
    >>> with jax.enable_x64(True):
    ...     jax.jit(jax.vmap(twice))(jnp.arange(4).reshape(2, 2)).tolist()
    [[0, 2], [4, 6]]
    """

    def __init__(self, sum: Sum, alone: bool) -> None:
        self.sum, self._alone, self._number = sum, alone, next(_numbers)
        _sums[self._number] = self

    def __call__(self, words: Any) -> Any:
        """The sum of integers `(words,)`, while a program is traced; chains side by side have one together."""
        like = jax.ShapeDtypeStruct(words.shape, jnp.int64)
        if self._alone and is_usable():
            which = jnp.full((1,), self._number, jnp.int64)
            return jax.ffi.ffi_call(_TARGET, like, vmap_method="broadcast_all")(which, words)
        return self._by_callback(words)

    def kept(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """A program that asks for this sum, and keeps it."""
        return functools.partial(_with, self, program)

    def _by_callback(self, words: Any) -> Any:
        """The same by JAX's callback.

        Words travel as pairs of 32 bits: callbacks run in threads in which JAX may not know of double precision, and
        would silently cut longer ones to half.
        """
        halves = jax.lax.bitcast_convert_type(words, jnp.uint32)
        like = jax.ShapeDtypeStruct(halves.shape, jnp.uint32)
        answer = jax.pure_callback(self._of_halves, like, halves, vmap_method="broadcast_all")
        return jax.lax.bitcast_convert_type(answer, jnp.int64)

    def _of_halves(self, halves: np.ndarray) -> np.ndarray:
        own = np.ascontiguousarray(halves)
        assert own.dtype == np.uint32
        return self.sum(own.reshape(-1).view(np.uint64)).view(np.uint32).reshape(own.shape)


def _with(call: NetworkCall, program: Callable[..., Any], *arguments: Any) -> Any:
    return program(*arguments)
