"""Where a measurement was made: device, driver, backend, versions and host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

INSTRUCTION_SETS = (
    "avx2", "avx512", "vnni", "avx_vnni", "amx_int8", "bf16", "neon", "dotprod", "i8mm", "sve",
)  # fmt: skip
"""Numbers of a CPU that are 1 where it has the instructions, 0 where it has not."""


@dataclass(frozen=True)
class Environment:
    """All that makes one machine's latencies differ from another's.

    Attributes:
        backend: name of the backend.
        backend_version: its version.
        device: what computes, such as a CPU's or GPU's marketing name.
        tuner_version: version of the compiler's knob listing, empty where the backend has none.
        driver: GPU driver, empty on CPU.
        host: a hash of the machine's identity, so that hosts can be told apart without being named.
        system: operating system and kernel release.
        versions: packages whose version changes what is built, by name.
        numbers: what the device can do, in the units the names say: ``cores``, ``threads``, ``clock_mhz``,
            ``memory_gb``, ``l2_mb``, ``l3_mb``, ``bandwidth_gbs``, ``peak_gflops``, ``streaming_multiprocessors``...
            Numbers that are not known are absent. They do not enter the identity, since they may be measured.
    """

    backend: str
    backend_version: str
    device: str
    tuner_version: str = ""
    driver: str = ""
    host: str = ""
    system: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """16 hexadecimal digits that differ when anything but ``numbers`` differs."""
        content = {name: value for name, value in asdict(self).items() if name != "numbers"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def kind(self) -> str:
        """Backend, device and instruction sets: virtual machines give CPUs of several generations the same name."""
        return " ".join([f"{self.backend}/{self.device}", *self.instruction_sets])

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        """Those that the device is known to have; none on a GPU."""
        return tuple(name for name in INSTRUCTION_SETS if self.numbers.get(name))

    @property
    def minor_version(self) -> str:
        """Major and minor version of the backend, as ``1.20``; empty when unknown."""
        return ".".join(self.backend_version.split(".")[:2])

    def comparable(self, other: Environment) -> bool:
        """Whether measurements made here and there may stand for each other: same kind of device, same versions."""
        mine, theirs = ((each.kind, each.backend_version, each.tuner_version) for each in (self, other))
        return mine == theirs

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Environment:
        """Reads what ``to_json`` wrote; keys it does not know are ignored."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})
