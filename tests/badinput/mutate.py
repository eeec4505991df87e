"""Values that nobody expects, put into manifests that somebody might send: drawn from the caller's random."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

TEXTS = (
    "", " ", "x", "x0", "default", "kube-system", "-1", "0", "1", "1e400", "9" * 400, "1Ei", "100m", "0.0000000001",
    "NaN", "a" * 64, "a" * 300, "a/b/c", "../../etc/passwd", "%00", "\x00", "\x1b[31m", "\u2028", "\ud7ff", "\ufeff",
    "𝔘", "Ａ", "null", "true", "{}", "[]", "*", "system:masters", "kubernetes.io/hostname", "example.com/" + "x" * 70,
    "10.0.0.1", "::ffff:1.2.3.4", "2026-11-16T00:00:00Z", "9999999999-01-01T00:00:00Z", "1h", "99999h", "(((", "[a-",
    "1970-01-01T00:00:00.0000000000000Z", "self.x == 1", "Always", "Guaranteed", "gold", "k8s.io/rdt", "limits.memory",
    "pods",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 80, 65535, 65536, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40)
FLOATS = (0.0, -0.0, 0.5, 1e308, -1e308, 5e-324, 1.5)


def scalar(random: Random) -> Any:
    kind = random.randrange(8)
    if kind < 4:
        return random.choice(TEXTS)
    if kind < 6:
        return random.choice(NUMBERS)
    return random.choice(FLOATS) if kind == 6 else random.choice((None, True, False))


def value(random: Random, depth: int = 2) -> Any:
    kind = random.randrange(5)
    if depth == 0 or kind < 3:
        return scalar(random)
    if kind == 3:
        return [value(random, depth - 1) for _ in range(random.randrange(4))]
    return {str(random.choice(TEXTS)): value(random, depth - 1) for _ in range(random.randrange(4))}


def places(found: Any) -> list[tuple[Any, Any]]:
    """Every place in an object that can be changed: its container, and its key or index."""
    out: list[tuple[Any, Any]] = []
    pending = [found]
    while pending:
        one = pending.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            out.append((one, key))
            pending.append(one[key])
    return out


def mutated(random: Random, raw: Any) -> Any:
    """A copy with a few changes, most of them near to what was there."""
    found = copy.deepcopy(raw)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        known = places(found)
        if not known:
            return value(random)
        where, key = random.choice(known)
        _change(random, found, known, where, key)
    return found


def _change(random: Random, whole: Any, known: list[tuple[Any, Any]], where: Any, key: Any) -> None:
    kind = random.randrange(9)
    if kind < 3:
        where[key] = scalar(random)
    elif kind == 3:
        where[key] = value(random)
    elif kind == 4:
        del where[key]
    elif kind == 5 and isinstance(where, dict):
        where[random.choice(TEXTS)] = where[key]
    elif kind == 5:
        where[key:key] = [copy.deepcopy(where[key])] * random.choice((1, 2, 40))
    elif kind == 6:
        other, theirs = random.choice(known)
        where[key] = copy.deepcopy(other[theirs])
    elif kind == 7:
        where[key] = [where[key]] if random.random() < 0.5 else {str(key): where[key]}
    elif isinstance(where[key], str):
        at = random.randrange(len(where[key]) + 1)
        where[key] = where[key][:at] + random.choice(TEXTS) + where[key][at:]
    elif isinstance(where[key], dict) and isinstance(whole, dict):
        where[key][random.choice(("metadata", "spec", "status", "kind", "namespace", "generateName"))] = value(random)


def damaged(random: Random, data: bytes) -> bytes:
    """Bytes with some of them changed, cut or repeated."""
    out = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        at = random.randrange(len(out) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            out[at:at] = random.randbytes(random.randrange(5))
        elif kind == 2:
            del out[at : at + random.randrange(1, 9)]
        elif kind == 3:
            out[at:at] = out[at : at + random.randrange(40)]
        elif at < len(out):
            out[at] = random.choice(b'\x00\xff\x80\x7f"{}[],:\\\r\n% ')
    return bytes(out)


def as_json(random: Random, found: Any) -> bytes:
    """As clients write it, and as nobody should: keys twice, odd numbers, characters that are none."""
    text = json.dumps(found, ensure_ascii=random.random() < 0.5)
    kind = random.randrange(20)
    if kind == 0:
        text = text.replace("{", '{"metadata":{"name":"twice"},', 1)
    elif kind == 1:
        text = text.replace("1", random.choice(("1e999", "-0", "1.0", "01", "0x1", "Infinity", "1" * 5000)), 1)
    elif kind == 2:
        text = text.replace('"', '"\\ud800', 2)
    elif kind == 3:
        deep = random.choice((100, 1000, 20_000))
        text = text.replace("{", '{"spec":' + "[" * deep + "]" * deep + ",", 1)
    return text.encode("utf-8", "surrogatepass")
