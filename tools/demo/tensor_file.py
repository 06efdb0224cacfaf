"""Files of the safetensors format: the length of a JSON header, the header, the tensors' bytes. No packages needed."""
import json
import struct
from array import array

from gguf_file import to_bytes, to_floats


def read(path):
    """{name: (shape, floats)}; the last number of a shape is the length of a row."""
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = entry["shape"], _floats(name, entry["dtype"], data[begin:end])
    return tensors


def _floats(name, kind, data):
    if kind == "F32":
        return to_floats(data)
    if kind == "F16":
        return array("f", [value for value, in struct.iter_unpack("<e", data)])
    if kind == "BF16":  # the upper half of a float
        return to_floats(b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))
    raise ValueError(f"tensor '{name}' is of type {kind}; F32, F16 and BF16 can be read")


def write(path, tensors):
    """tensors: {name: (shape, floats)}; written as F32."""
    header, pieces, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, (shape, values) in tensors.items():
        pieces.append(to_bytes(values))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(pieces[-1])]}
        at += len(pieces[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(pieces)
