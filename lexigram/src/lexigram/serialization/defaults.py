"""The registry and codecs of the process, and functions that use them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from lexigram.serialization.codec import Codec
from lexigram.serialization.errors import CodecError
from lexigram.serialization.registry import C, TypeRegistry

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")


@runtime_checkable
class SerializerProtocol(Protocol):
    """Turns values into bytes and back; what ``serializer = <name>`` in a configuration means.

    ``decode(encode(value, kind), kind)`` equals ``value``. Both raise ``SerializationError``
    for what they cannot do, never run code named by the data, and may be called from any thread.
    """

    def encode(self, value: Any, kind: Any = None) -> bytes: ...

    def decode(self, data: bytes, kind: TypeForm[T]) -> T: ...


types: Final = TypeRegistry()
_lock = Lock()
_json = Codec("json", registry=types)
_codecs: dict[str, SerializerProtocol] = {
    "json": _json,
    "msgpack": Codec("msgpack", registry=types),
}


def dumps(value: Any, kind: Any = None) -> bytes:
    """``value`` as JSON; ``kind`` where the declared type says more than its class."""
    return _json.encode(value, kind)


def loads(data: bytes | bytearray | memoryview, kind: TypeForm[T]) -> T:
    """The value that the JSON ``data`` say, as a ``kind``."""
    return _json.decode(data, kind)


def unstructure(value: Any, kind: Any = None) -> Any:
    """``value`` as dicts, lists, text, numbers and None, ready for JSON."""
    return _json.unstructure(value, kind)


def structure(data: Any, kind: TypeForm[T]) -> T:
    """The value of such plain data, as a ``kind``."""
    return _json.structure(data, kind)


def register(cls: C, name: str | None = None) -> C:
    """Let data of every codec of the process name ``cls``; usable as a decorator."""
    return types.register(cls, name)


def get_codec(name: str = "json") -> SerializerProtocol:
    """The codec of this name: json, msgpack, or one given to ``register_codec``."""
    codec = _codecs.get(name)
    if codec is None:
        raise CodecError(
            f"there is no codec {name!r}",
            details={"name": name, "known": sorted(_codecs)},
            hint=f"known: {', '.join(sorted(_codecs))}; add one with register_codec",
        )
    return codec


def register_codec(name: str, codec: SerializerProtocol) -> None:
    """Make ``codec`` available by ``name``, for configurations that choose by name."""
    with _lock:
        if _codecs.get(name, codec) is not codec:
            raise CodecError(
                f"the name {name!r} belongs to another codec",
                details={"name": name},
                hint="choose another name",
            )
        _codecs[name] = codec
