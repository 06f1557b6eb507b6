"""A codec: values to bytes and back, fast where msgspec agrees with the converter."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from attrs import frozen

from lexigram.serialization.errors import DecodeError, EncodeError, UnsupportedTypeError
from lexigram.serialization.fast import LEVELS, Shape, is_flat, is_plain, shape_of
from lexigram.serialization.limits import Limits
from lexigram.serialization.problems import decode_error, encode_error, is_recursion
from lexigram.serialization.reading import Readers
from lexigram.serialization.registry import TypeRegistry
from lexigram.serialization.types import Dialect, is_record, label
from lexigram.serialization.writing import Writers

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")


class Codec:
    """Encodes and decodes by declared types, in JSON or msgpack.

    ``encode(value)`` writes the value as its own class; give the declared type where it says
    more (``list[Order]``, a base class, a union, ``object``), and decode with the same. Decoding
    is strict: text is no number. Unknown keys are ignored, missing ones take the default.
    What goes wrong is a ``SerializationError``, whatever the bytes.
    """

    def __init__(
        self,
        name: str = "json",
        *,
        registry: TypeRegistry | None = None,
        limits: Limits | None = None,
        fast: bool = True,
        lossless: bool = False,
    ) -> None:
        """``name`` is json or msgpack; ``fast=False`` leaves msgspec's own class support out.

        ``lossless=True`` refuses a value where no type is declared for it and a reader would get
        another one: a datetime that comes back as text, a tuple that comes back as a list.
        """
        if name not in _FORMATS:
            raise UnsupportedTypeError(
                f"there is no format {name!r}",
                details={"format": name},
                hint=f"formats are {', '.join(_FORMATS)}",
            )
        self.name = name
        self.registry = registry or TypeRegistry()
        self.limits = limits or Limits()
        self._fast = fast
        self._lossless = lossless
        self._short = min(LEVELS, self.limits.max_depth)  # how deep the short way looks
        self._known = _Known(version=-1, readers=None, writers=None, plans={})

    @cached_property
    def _format(self) -> _Format:
        made: _Format = _FORMATS[self.name]()  # loads msgspec, so at first use
        return made

    @cached_property
    def lossless(self) -> Codec:
        """The same codec with ``lossless=True``."""
        if self._lossless:
            return self
        return Codec(
            self.name, registry=self.registry, limits=self.limits, fast=self._fast, lossless=True
        )

    def encode(self, value: Any, kind: Any = None) -> bytes:
        """The bytes of ``value`` as a ``kind``; without one, as its own class."""
        declared = value.__class__ if kind is None else kind
        if kind is None and self._fast and declared in _CONTAINERS and is_plain(value, self._short):
            data = self._write_plain(value)
            if data is not None:
                return data
        plan = self._plan(declared)
        if plan.shape.encode and (kind is None or not plan.is_record or value.__class__ is kind):
            try:
                data = self._format.write(value) if plan.shape.fits(value) else None
            except Exception:  # noqa: BLE001 - what msgspec refuses, the converter explains
                data = None
            if data is not None and self._is_exact(plan, data):
                self.limits.check_size(len(data))
                return data
        return self._encode_by_converter(value, declared, plan)

    def decode(self, data: bytes | bytearray | memoryview, kind: TypeForm[T]) -> T:
        """The value that ``data`` say, as a ``kind``."""
        if kind is Any and data.__class__ is bytes and self._fast:
            plain = self._read_plain(data)
            if plain is not None:
                return cast("T", plain)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise DecodeError(
                f"expected bytes, got {type(data).__name__}",
                details={"path": "$", "got": type(data).__name__},
                hint="encode text with .encode() first",
            )
        self.limits.check_size(len(data))
        plan = self._plan(kind)
        if plan.decoder is not None and (plan.shape.bounded or self._is_shallow(data)):
            try:
                fast: T = plan.decoder.decode(data)
            except Exception:  # noqa: BLE001, S110 - what msgspec refuses, the converter explains
                pass
            else:
                return fast
        slow: T = self._decode_by_converter(data, kind, plan)
        return slow

    def unstructure(self, value: Any, kind: Any = None) -> Any:
        """``value`` as plain data: what ``encode`` writes, before it is bytes."""
        declared = value.__class__ if kind is None else kind
        return self._unstructure(value, declared, self._plan(declared))

    def structure(self, data: Any, kind: TypeForm[T]) -> T:
        """The value of plain data, such as a parsed document or a JSON column."""
        value: T = self._structure(data, kind, self._plan(kind))
        return value

    def _write_plain(self, value: Any) -> bytes | None:
        """Plain data as they are: 0.6 µs, where the converter takes 6 to copy them first."""
        try:
            data = self._format.write(value)
        except Exception:  # noqa: BLE001 - the converter explains what is wrong
            return None
        if b"null" in data and not self._format.dialect.all_floats:
            return None  # it may be NaN: the converter refuses that
        self.limits.check_size(len(data))
        return data

    def _read_plain(self, data: Any) -> Any:
        """A dict or list without type names, read as it is; None: look closer."""
        if len(data) > self.limits.max_bytes:
            return None
        try:
            plain = self._format.read(data)
        except Exception:  # noqa: BLE001 - the converter explains what is wrong
            return None
        kind = plain.__class__
        if kind is not dict and kind is not list:
            return None
        # Data without a dollar, as it is or escaped, name no type: the keys are not walked. That
        # leaves how deep they are.
        if (
            self._format.brackets is not None
            and _DOLLAR not in data
            and _ESCAPE not in data
            and (self._is_shallow(data) or is_flat(plain.values() if kind is dict else plain))
        ):
            return plain
        return plain if is_plain(plain, self._short) else None

    def _encode_by_converter(self, value: Any, kind: Any, plan: _Plan) -> bytes:
        tree = self._unstructure(value, kind, plan)
        try:
            data = self._format.write(tree)
        except Exception as error:
            raise EncodeError(
                f"{self.name} cannot hold the value: {error}",
                details={"path": "$", "type": label(kind)},
                hint="msgpack holds 64-bit integers only; text must be valid Unicode",
            ) from error
        self.limits.check_size(len(data))
        return data

    def _unstructure(self, value: Any, kind: Any, plan: _Plan) -> Any:
        try:
            tree = plan.writers.of(kind)(value)
        except RecursionError:
            raise self.limits.too_deep() from None
        except Exception as error:  # noqa: BLE001 - the boundary: constructors may raise anything
            made = encode_error(error, kind)
            raise made from made.cause
        if not plan.shape.bounded:
            self.limits.check_depth(tree)
        return tree

    def _decode_by_converter(self, data: Any, kind: Any, plan: _Plan) -> Any:
        try:
            tree = self._format.read(data)
        except RecursionError:
            raise self.limits.too_deep() from None
        except Exception as error:
            raise DecodeError(
                f"the data are not {self.name}: {error}",
                details={"path": "$", "type": label(kind), "size": len(data)},
                hint="check that the writer used the same codec and that nothing was cut off",
            ) from error
        return self._structure(tree, kind, plan)

    def _structure(self, tree: Any, kind: Any, plan: _Plan) -> Any:
        if not plan.shape.bounded:
            self.limits.check_depth(tree)
        try:
            return plan.readers.of(kind)(tree, kind)
        except Exception as error:  # noqa: BLE001 - the boundary, as above
            if is_recursion(error):
                raise self.limits.too_deep() from None
            made = decode_error(error, kind)
            raise made from made.cause

    def _is_exact(self, plan: _Plan, data: bytes) -> bool:
        """Msgspec writes NaN as null; and what nests without end is measured elsewhere."""
        if plan.shape.floats and not self._format.dialect.all_floats and b"null" in data:
            return False
        return plan.shape.bounded or self._is_shallow(data)

    def _is_shallow(self, data: bytes | bytearray | memoryview) -> bool:
        """Fewer brackets than levels allowed; a quick answer for small data."""
        if self._format.brackets is None or isinstance(data, memoryview):
            return False
        return sum(map(data.count, self._format.brackets)) <= self.limits.max_depth

    def _plan(self, kind: Any) -> _Plan:
        known = self._known
        if known.version != self.registry.version:
            known = self._known = self._forget()
        try:
            plan = known.plans.get(kind)
        except TypeError as error:
            raise UnsupportedTypeError(
                f"{kind!r} is not a type",
                details={"type": repr(kind)[:100]},
                hint="give a class or an annotation such as list[int]",
            ) from error
        if plan is None:
            plan = known.plans[kind] = self._make_plan(kind, known)
        return plan

    def _forget(self) -> _Known:
        from cattrs.preconf.orjson import make_converter

        version, dialect = self.registry.version, self._format.dialect
        readers = Readers(make_converter(), self.registry, dialect)
        writers = Writers(self.registry, dialect, lossless=self._lossless)
        return _Known(version=version, readers=readers, writers=writers, plans={})

    def _make_plan(self, kind: Any, known: _Known) -> _Plan:
        moments = self._format.native_moments
        shape = shape_of(kind, self.registry, native_moments=moments)
        if not self._fast:
            shape.encode = shape.decode = False
        return _Plan(
            shape=shape,
            decoder=self._decoder(kind) if shape.decode else None,
            readers=known.readers,
            writers=known.writers,
            is_record=is_record(kind),
        )

    def _decoder(self, kind: Any) -> Any:
        try:
            return self._format.decoder(kind)
        except (TypeError, NameError):
            return None  # msgspec resolves annotations in its own way; the converter can do it


@frozen(kw_only=True)
class _Plan:
    shape: Shape
    decoder: Any
    readers: Readers
    writers: Writers
    is_record: bool


@frozen(kw_only=True)
class _Known:
    """What was found out under one version of the registry."""

    version: int
    readers: Any
    writers: Any
    plans: dict[Any, _Plan]


class _Format(Protocol):
    dialect: Dialect
    native_moments: bool
    brackets: tuple[bytes, ...] | None

    def write(self, tree: Any) -> bytes: ...
    def read(self, data: Any) -> Any: ...
    def decoder(self, kind: Any) -> Any: ...


class _Json:
    dialect = Dialect(native_bytes=False, all_floats=False)
    native_moments = False
    brackets: tuple[bytes, ...] | None = (b"[", b"{")

    def __init__(self) -> None:
        # Not orjson: it reads integers beyond 64 bits as floats.
        from msgspec.json import Decoder, Encoder

        self.write = Encoder().encode
        self.read = Decoder().decode

    def decoder(self, kind: Any) -> Any:
        from msgspec.json import Decoder

        return Decoder(kind)


class _Msgpack:
    dialect = Dialect(native_bytes=True, all_floats=True)
    native_moments = True
    brackets: tuple[bytes, ...] | None = None

    def __init__(self) -> None:
        from msgspec.msgpack import Decoder, Encoder

        self.write = Encoder().encode
        self.read = Decoder().decode

    def decoder(self, kind: Any) -> Any:
        from msgspec.msgpack import Decoder

        return Decoder(kind)


_CONTAINERS = (dict, list)
_DOLLAR, _ESCAPE = b"$\\"  # as numbers: one search of the C library each
_FORMATS: dict[str, Any] = {"json": _Json, "msgpack": _Msgpack}
