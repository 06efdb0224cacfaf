"""GGUF files (version 3, little-endian), as far as the demo models need them: F32 and Q8_0 tensors. No packages needed."""
import struct
from array import array
from dataclasses import dataclass

F32, Q8_0 = 0, 8
BLOCK, BLOCK_BYTES = 32, 34  # of Q8_0: a half for the scale, then 32 signed bytes
ALIGNMENT = 32
# Metadata types, as the file numbers them.
U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", FLOAT: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass
class Array:
    """A list in the metadata, with the type of its elements."""
    type: int
    values: list


@dataclass
class Tensor:
    type: int
    shape: list  # shape[0] is the length of a row
    data: bytes


def quantize(values):
    """Q8_0. Intermediate results are rounded to floats, so that the blocks are those that any other program makes."""
    if len(values) % BLOCK:
        raise ValueError(f"{len(values)} values do not divide into blocks of {BLOCK}")
    pack = struct.Struct("<e32b").pack
    blocks = []
    for at in range(0, len(values), BLOCK):
        block = values[at:at + BLOCK]
        scale, = array("f", [max(max(block), -min(block)) / 127])
        inverse, = array("f", [1 / scale if scale else 0])
        products = array("f", [x * inverse for x in block])
        # To the nearest, halves away from zero.
        blocks.append(pack(scale, *[int(x + 0.5) if x > 0 else -int(0.5 - x) for x in products]))
    return b"".join(blocks)


def dequantize(data):
    values = array("f")
    for scale, *quants in struct.iter_unpack("<e32b", data):
        values.extend([scale * q for q in quants])
    return values


SWAP = struct.pack("=H", 1) != struct.pack("<H", 1)  # the files are little-endian; this machine may not be


def to_bytes(values):
    values = array("f", values)
    if SWAP:
        values.byteswap()
    return values.tobytes()


def to_floats(data):
    values = array("f", data)
    if SWAP:
        values.byteswap()
    return values


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    if kind == STRING:
        return _string(value)
    if kind == ARRAY:
        return struct.pack("<IQ", value.type, len(value.values)) + b"".join(_value(value.type, v) for v in value.values)
    return struct.pack("<" + FORMATS[kind], value)


def _padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def write(path, metadata, tensors):
    """metadata: [(key, type, value)]; tensors: {name: Tensor}. Both stand in the file in the order given."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, kind, value in metadata:
        head += [_string(key), struct.pack("<I", kind), _value(kind, value)]
    offset = 0
    for name, tensor in tensors.items():
        head.append(_string(name) + struct.pack(f"<I{len(tensor.shape)}QIQ", len(tensor.shape), *tensor.shape, tensor.type,
                                                offset))
        offset += len(_padded(tensor.data))
    with open(path, "wb") as file:
        file.write(_padded(b"".join(head)))
        for tensor in tensors.values():
            file.write(_padded(tensor.data))


def read(path):
    """({key: value}, {name: Tensor}) of a file that is trusted to be right."""
    with open(path, "rb") as file:
        image = file.read()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, image, at)
        at += struct.calcsize("<" + form)
        return values if len(values) != 1 else values[0]

    def string():
        nonlocal at
        length = take("Q")
        at += length
        return image[at - length:at].decode()

    def value(kind):
        if kind == STRING:
            return string()
        if kind == ARRAY:
            element, count = take("IQ")
            return Array(element, [value(element) for _ in range(count)])
        return take(FORMATS[kind])

    magic, version = take("4sI")
    if magic != b"GGUF" or version != 3:
        raise ValueError(f"{path}: not a GGUF file of version 3")
    tensor_count, key_count = take("QQ")
    metadata = {}
    for _ in range(key_count):
        key = string()
        metadata[key] = value(take("I"))
    places = []
    for _ in range(tensor_count):
        name, dims = string(), take("I")
        shape = [take("Q") for _ in range(dims)]
        places.append((name, shape, *take("IQ")))
    start = at + -at % metadata.get("general.alignment", ALIGNMENT)
    tensors = {}
    for name, shape, kind, offset in places:
        elements = 1
        for length in shape:
            elements *= length
        size = {F32: elements * 4, Q8_0: elements // BLOCK * BLOCK_BYTES}.get(kind)
        if size is None:
            raise ValueError(f"{path}: tensor '{name}' is neither F32 nor Q8_0")
        tensors[name] = Tensor(kind, shape, image[start + offset:start + offset + size])
    return metadata, tensors
