"""Ways in which a model file gets damaged, and files that never were one."""

import hashlib
import io
import json
import pickle
import zipfile

import numpy as np

SHA = slice(35, 99)


def start_of(data):
    """Return the JSON about the file, and the table of its arrays."""
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    return json.loads(table.pop("__metadata__")["fairstream"]), table


def resealed(data, about, table):
    """Return the file with another header and a digest and size that are right for it."""
    payload = data[8 + int.from_bytes(data[:8], "little") :]
    text = about if isinstance(about, str) else json.dumps(about)
    metadata = {"sha256": "0" * 64, "size": "0" * 20, "fairstream": text}
    header = json.dumps({"__metadata__": metadata, **table}, separators=(",", ":")).encode()
    whole = len(header).to_bytes(8, "little") + header + payload
    whole = bytearray(whole.replace(b'"size":"' + b"0" * 20, b'"size":"%020d' % len(whole), 1))
    whole[SHA] = hashlib.sha256(whole).hexdigest().encode()
    return bytes(whole)


class Bomb:
    """Leaves a mark when it is unpickled."""

    exploded = False

    def __reduce__(self):
        return setattr, (Bomb, "exploded", True)


def truncated(data, others, rng):
    return data[: rng.integers(len(data))]


def bit_flipped(data, others, rng):
    changed = bytearray(data)
    changed[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return changed


def header_bit_flipped(data, others, rng):
    changed = bytearray(data)
    changed[rng.integers(8 + int.from_bytes(data[:8], "little"))] ^= 1 << int(rng.integers(8))
    return changed


def many_bytes_changed(data, others, rng):
    changed = np.frombuffer(data, dtype=np.uint8).copy()
    changed[rng.integers(len(data), size=20)] ^= rng.integers(1, 256, size=20).astype(np.uint8)
    return changed.tobytes() if changed.tobytes() != data else data[:-1]


def extended(data, others, rng):
    return data + rng.bytes(int(rng.integers(1, 1000)))


def header_swapped(data, others, rng):
    other = others[rng.integers(len(others))]
    ours, theirs = (8 + int.from_bytes(d[:8], "little") for d in (data, other))
    return other[:theirs] + data[ours:]


def huge_length(data, others, rng):
    length = int(rng.choice([2**63, 2**62, 2**40, 2**31])) + int(rng.integers(100))
    return length.to_bytes(8, "little") + data[8:]


def wrong_length(data, others, rng):
    length = int.from_bytes(data[:8], "little") + int(rng.choice([-64, -8, -1, 1, 8, 64]))
    return length.to_bytes(8, "little") + data[8:]


def huge_size(data, others, rng):
    changed = bytearray(data)
    changed[108:128] = b"%020d" % int(rng.integers(2**40, 2**60))
    return changed


def zeroed_region(data, others, rng):
    start = int(rng.integers(len(data) - 64))
    changed = data[:start] + bytes(64) + data[start + 64 :]
    return changed if changed != data else data[:-1]


def region_moved(data, others, rng):
    cut = int(rng.integers(1, len(data)))
    return data[cut:] + data[:cut]


def renamed_pickle(data, others, rng):
    return pickle.dumps([Bomb(), rng.bytes(int(rng.integers(500)))])


def renamed_zip(data, others, rng):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Bomb()))
        archive.writestr("rest", data[: rng.integers(len(data))])
    return stream.getvalue()


def foreign_safetensors(data, others, rng):
    header = json.dumps({"x": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}).encode()
    header += b" " * int(rng.integers(200))
    return len(header).to_bytes(8, "little") + header + rng.bytes(24)


def noise(data, others, rng):
    return rng.bytes(int(rng.integers(0, 400)))


DAMAGES = (
    truncated,
    bit_flipped,
    header_bit_flipped,
    many_bytes_changed,
    extended,
    header_swapped,
    huge_length,
    wrong_length,
    huge_size,
    zeroed_region,
    region_moved,
    renamed_pickle,
    renamed_zip,
    foreign_safetensors,
    noise,
)
