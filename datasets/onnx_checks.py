"""Whether the operators of a model exist."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from onnx import ModelProto, defs

from routecast.datasets.errors import UsageError
from routecast.datasets.onnx_file import all_nodes, domain_of, opsets


def check_operators(proto: ModelProto, path: Path) -> None:
    """Checks every operator against ONNX's own operator sets, ONNX Runtime's and the model's functions.

    Raises:
        UsageError: an operator is in none of them, or the model's operator set is newer than the onnx
            package.
    """
    versions = opsets(proto)
    newest = defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise UsageError(
            f"{path} uses opset {versions['']}, but this onnx package knows opsets up to {newest}: "
            "pip install --upgrade onnx onnxruntime"
        )
    own = {(domain_of(function.domain), function.name) for function in proto.functions}
    used = {(domain_of(node.domain), node.op_type): node.name for node in all_nodes(proto)}
    for (domain, op), name in used.items():
        version = versions.get(domain, 1)
        if (domain, op) in own or _in_onnx(domain, op, version) or _in_onnxruntime(domain, op, version):
            continue
        where = f" (node {name!r})" if name else ""
        if domain:
            raise UsageError(
                f"{path}: unknown operator {domain}::{op}{where}; custom operators are not supported, "
                "export the model without them"
            )
        raise UsageError(
            f"{path}: unknown operator {op}{where}: opset {version} of ONNX has none of that name; "
            "export the model with another opset"
        )


def _in_onnx(domain: str, op: str, version: int) -> bool:
    try:
        return not defs.get_schema(op, version, domain).deprecated
    except defs.SchemaError:
        return False


def _in_onnxruntime(domain: str, op: str, version: int) -> bool:
    """Whether ONNX Runtime knows it: its own domains, and what it put into ONNX's before ONNX had it."""
    schemas = [schema for schema in _onnxruntime_schemas().get((domain, op), ()) if schema[0] <= version]
    return bool(schemas) and not max(schemas)[1]


@cache
def _onnxruntime_schemas() -> dict[tuple[str, str], list[tuple[int, bool]]]:
    """(version it is from, whether it is deprecated) by domain and operator; empty without ONNX Runtime."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    except ImportError:
        return {}
    found: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for schema in get_all_operator_schema():
        found.setdefault((schema.domain, schema.name), []).append((schema.since_version, schema.deprecated))
    return found
