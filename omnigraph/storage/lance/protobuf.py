"""Protobuf wire format, as far as the metadata of Lance uses it: varints and bytes, numbered.

Invariant: `encoded(decoded(data))` is `data`. A message with another kind of field is refused.
"""

from omnigraph.errors import StorageFailed

Message = list[tuple[int, int | bytes]]
"""The fields of a message in order: number and value."""

_VARINT, _BYTES = 0, 2


def decoded(data: bytes) -> Message:
    """The fields of a message."""
    message: Message = []
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        value, position = varint(data, position)
        if key & 7 == _VARINT:
            message.append((key >> 3, value))
        elif key & 7 == _BYTES:
            message.append((key >> 3, data[position : position + value]))
            position += value
        else:
            raise StorageFailed("read the columns of a table", "Lance writes them in another way")
    return message


def encoded(message: Message) -> bytes:
    """The bytes of a message."""
    data = bytearray()
    for number, value in message:
        if isinstance(value, bytes):
            data += _as_varint(number << 3 | _BYTES) + _as_varint(len(value)) + value
        else:
            data += _as_varint(number << 3 | _VARINT) + _as_varint(value)
    return bytes(data)


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the position after it; `IndexError` if
    the data ends before."""
    value = shift = 0
    while data[position] >= 0x80:
        value |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1


def _as_varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
