"""How the server says no: a canonical code and a sentence, and how a batch's are packed into one gRPC status."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from finsy.proto import p4r, rpc_status
from google.protobuf.any_pb2 import Any

# google.rpc.Code; grpc.StatusCode has them as (number, name).
OK = 0
INVALID_ARGUMENT = 3
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
UNKNOWN = 2

GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
DETAILS_KEY = "grpc-status-details-bin"


class Refused(Exception):  # noqa: N818 - it is an answer
    """A request, or one update of a batch, that the server does not accept."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{GRPC_CODES[code].name}: {message}")
        self.code = code
        self.message = message


def batch_details(results: Sequence[Refused | None]) -> bytes:
    """The trailer of a batch of which some failed: one p4.v1.Error per update, in order (Write: Error Reporting)."""
    status = rpc_status.Status(code=UNKNOWN, message="Write failure.")
    for result in results:
        error = p4r.Error(canonical_code=OK)
        if result is not None:
            error = p4r.Error(
                canonical_code=result.code, message=result.message, space="dlcp-test", code=result.code
            )
        packed = Any()
        packed.Pack(error)
        status.details.append(packed)
    trailer: bytes = status.SerializeToString()
    return trailer
