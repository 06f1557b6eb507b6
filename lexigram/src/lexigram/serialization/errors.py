"""What can go wrong between a value and its bytes; one class per code."""

from __future__ import annotations

from lexigram.contracts.core.errors import LexigramError


class SerializationError(LexigramError):
    """A value could not be turned into bytes, or bytes into a value.

    An error about a value or data says where in ``details["path"]``, as ``$.orders[2].total``;
    ``$`` is the whole. An error about a type or a registration names those instead.
    """

    code = "LEX_ERR_SERIAL_001"


class EncodeError(SerializationError):
    """The value holds something that has no form in the format."""

    code = "LEX_ERR_SERIAL_101"
    is_retryable = False


class DecodeError(SerializationError):
    """The bytes are malformed, or what they say does not fit the type."""

    code = "LEX_ERR_SERIAL_102"


class UnknownTypeError(DecodeError):
    """The data name a type that is not registered, or not one that may stand there."""

    code = "LEX_ERR_SERIAL_103"


class LimitError(SerializationError):
    """The data are larger or deeper than the limits allow."""

    code = "LEX_ERR_SERIAL_104"


class UnsupportedTypeError(SerializationError):
    """The type itself cannot be serialized, whatever the value."""

    code = "LEX_ERR_SERIAL_105"
    is_retryable = False


class TypeRegistrationError(SerializationError):
    """A class or a name was registered twice in different ways, or is no class we can read."""

    code = "LEX_ERR_SERIAL_106"
    is_retryable = False


class CodecError(SerializationError):
    """There is no codec of this name, or the name is taken."""

    code = "LEX_ERR_SERIAL_107"
    is_retryable = False
