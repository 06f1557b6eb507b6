"""Values to bytes and back, by their types: ``dumps(value)``, ``loads(data, Type)``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.serialization.codec import Codec
    from lexigram.serialization.defaults import (
        SerializerProtocol,
        dumps,
        get_codec,
        loads,
        register,
        register_codec,
        structure,
        unstructure,
    )
    from lexigram.serialization.errors import (
        CodecError,
        DecodeError,
        EncodeError,
        LimitError,
        SerializationError,
        TypeRegistrationError,
        UnknownTypeError,
        UnsupportedTypeError,
    )
    from lexigram.serialization.limits import Limits
    from lexigram.serialization.registry import TypeRegistry
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.serialization.codec": ["Codec"],
            "lexigram.serialization.defaults": [
                "SerializerProtocol",
                "dumps",
                "get_codec",
                "loads",
                "register",
                "register_codec",
                "structure",
                "unstructure",
            ],
            "lexigram.serialization.errors": [
                "CodecError",
                "DecodeError",
                "EncodeError",
                "LimitError",
                "SerializationError",
                "TypeRegistrationError",
                "UnknownTypeError",
                "UnsupportedTypeError",
            ],
            "lexigram.serialization.limits": ["Limits"],
            "lexigram.serialization.registry": ["TypeRegistry"],
        },
    )

__all__ = [
    "Codec",
    "CodecError",
    "DecodeError",
    "EncodeError",
    "LimitError",
    "Limits",
    "SerializationError",
    "SerializerProtocol",
    "TypeRegistrationError",
    "TypeRegistry",
    "UnknownTypeError",
    "UnsupportedTypeError",
    "dumps",
    "get_codec",
    "loads",
    "register",
    "register_codec",
    "structure",
    "unstructure",
]
