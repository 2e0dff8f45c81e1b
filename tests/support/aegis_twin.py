"""AEGIS-128X2 with tags of 16 bytes, slow and obvious: the oracle of the golden vectors.

After draft-irtf-cfrg-aegis-aead-18, "AEGIS-128X" with a degree of 2. Not in constant time.
"""

from cryptography.exceptions import InvalidTag

NONCE_BYTES = 16
_DEGREE = 2
_C0 = bytes.fromhex("000101020305080d1522375990e97962")
_C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")


def _times(a: int, b: int) -> int:
    """The product in AES's field."""
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a = a << 1 ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def _substitute(byte: int) -> int:
    inverse = next((x for x in range(256) if _times(byte, x) == 1), 0)
    turned = inverse * 0x101  # twice in a row, so that a shift turns it
    return 0x63 ^ inverse ^ ((turned >> 7 ^ turned >> 6 ^ turned >> 5 ^ turned >> 4) & 0xFF)


_SBOX = [_substitute(byte) for byte in range(256)]
_DOUBLE = [_times(byte, 2) for byte in range(256)]


def _xor(*blocks: bytes) -> bytes:
    value = 0
    for block in blocks:
        value ^= int.from_bytes(block, "big")
    return value.to_bytes(len(blocks[0]), "big")


def _and(a: bytes, b: bytes) -> bytes:
    return bytes(x & y for x, y in zip(a, b, strict=True))


def _aes_round(block: bytes, key: bytes) -> bytes:
    mixed = bytearray()
    for column in range(4):
        a = [_SBOX[block[(4 * column + 5 * row) % 16]] for row in range(4)]
        every = a[0] ^ a[1] ^ a[2] ^ a[3]
        mixed += bytes(a[row] ^ every ^ _DOUBLE[a[row] ^ a[(row + 1) % 4]] for row in range(4))
    return _xor(bytes(mixed), key)


class _State:
    def __init__(self, key: bytes, nonce: bytes) -> None:
        both = _xor(key, nonce)
        first = [both, _C1, _C0, _C1, both, _xor(key, _C0), _xor(key, _C1), _xor(key, _C0)]
        self.lanes = [list(first) for _ in range(_DEGREE)]
        for _ in range(10):
            for index, lane in enumerate(self.lanes):
                context = bytes([index, _DEGREE - 1]) + bytes(14)
                lane[3], lane[7] = _xor(lane[3], context), _xor(lane[7], context)
            self.update([nonce] * _DEGREE, [key] * _DEGREE)

    def update(self, left: list[bytes], right: list[bytes]) -> None:
        for index, lane in enumerate(self.lanes):
            keys = list(lane)
            keys[0] = _xor(keys[0], left[index])
            keys[4] = _xor(keys[4], right[index])
            self.lanes[index] = [_aes_round(lane[(i + 7) % 8], keys[i]) for i in range(8)]

    def absorb(self, block: bytes) -> None:
        parts = [block[i : i + 16] for i in range(0, len(block), 16)]
        self.update(parts[:_DEGREE], parts[_DEGREE:])

    def stream(self) -> bytes:
        left = (_xor(v[6], v[1], _and(v[2], v[3])) for v in self.lanes)
        right = (_xor(v[2], v[5], _and(v[6], v[7])) for v in self.lanes)
        return b"".join(left) + b"".join(right)

    def tag(self, associated_bytes: int, text_bytes: int) -> bytes:
        sizes = (associated_bytes * 8).to_bytes(8, "little") + (text_bytes * 8).to_bytes(8, "little")
        ends = [_xor(lane[2], sizes) for lane in self.lanes]
        for _ in range(7):
            self.update(ends, ends)
        return _xor(*(block for lane in self.lanes for block in lane[:7]))


def _blocks(data: bytes) -> list[bytes]:
    size = 32 * _DEGREE
    return [data[i : i + size] for i in range(0, len(data), size)]


class Aegis128X2:
    """As `cryptography`'s AESGCM: the tag follows the text."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        return self._run(nonce, data, associated_data, decrypts=False)

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """Raises InvalidTag."""
        text, tag = data[:-16], data[-16:]
        plain = self._run(nonce, text, associated_data, decrypts=True)
        if plain[-16:] != tag:
            raise InvalidTag
        return plain[:-16]

    def _run(self, nonce: bytes, data: bytes, associated: bytes, *, decrypts: bool) -> bytes:
        state = _State(self._key, nonce)
        for block in _blocks(associated):
            state.absorb(block.ljust(64, b"\0"))
        out = b""
        for block in _blocks(data):
            other = _xor(block, state.stream()[: len(block)])
            state.absorb((other if decrypts else block).ljust(64, b"\0"))
            out += other
        return out + state.tag(len(associated), len(data))
