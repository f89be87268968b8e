"""Errors that clients get, with their statuses, and the statuses of the engine's errors.

ServiceError                      status  code
├─ InvalidRequestError            400     invalid_request       the request itself is malformed
│  └─ RefusedError                400     invalid_request       the protocol or the model does not allow it
├─ UnauthorizedError              401     unauthorized          no key, or an unknown one; with WWW-Authenticate
├─ ForbiddenError                 403     forbidden             the key does not allow this request
├─ NotFoundError                  404     not_found             no such route
│  ├─ ModelNotFoundError          404     model_not_found       the message lists the models
│  ├─ VersionNotFoundError        404     version_not_found     the message lists the versions
│  └─ SequenceNotFoundError       404     sequence_not_found    not started, ended, or idle for too long
├─ MethodNotAllowedError          405     method_not_allowed
├─ NotAcceptableError             406     not_acceptable        no answer in a format that Accept names
├─ RequestTimeoutError            408     request_timeout       headers or body did not arrive in time
├─ RequestTooLargeError           413     too_large             body, picture, tensor or batch over a limit
├─ UrlTooLongError                414     url_too_long
├─ UnsupportedMediaTypeError      415     unsupported_media_type
├─ InputMismatchError             422     input_mismatch        well-formed, but does not fit the model
├─ ModelLoadError                 422     load_failed           a model that was to be loaded cannot be served
├─ RetryLaterError                                              with Retry-After
│  ├─ QueueFullError              429     queue_full
│  ├─ TooManySequencesError       429     too_many_sequences
│  ├─ ModelNotReadyError          503     not_ready             loading, failed or stopping
│  └─ TooManyConnectionsError     503     too_many_connections
├─ HeadersTooLargeError           431     headers_too_large     too many, or too long
├─ InferenceFailedError           500     inference_failed      fault of the server; the reason is only in its log
├─ HookFailedError                500     hook_failed           a function of hooks.py beside the model failed
├─ InternalError                  500     internal              fault of the server; the reason is only in its log
└─ DeadlineExceededError          504     deadline_exceeded

Every body has the form ``{"error": {"code", "message", "detail"?}}``. No message contains a path of the machine, and
text from clients and files is cut to a bounded length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import engine
from app.messages import cut

_MESSAGE: Final = 4_000
_DETAIL: Final = 1_000
_ITEMS: Final = 1_000
# All engine errors that a request can cause. Errors in a run are due to the client's tensors (422), also those of
# expressions and parameters, since a model is served only after it has run. A run is cancelled at its deadline (504).
ENGINE_STATUS: Final[dict[type[engine.EngineError], int]] = {
    engine.EngineError: 500,
    engine.ModelFormatError: 500,
    engine.ParamSyntaxError: 500,
    engine.WeightsError: 500,
    engine.BundleError: 500,
    engine.GraphError: 500,
    engine.ExpressionError: 422,
    engine.UnsupportedOperatorError: 500,
    engine.ParameterError: 422,
    engine.ShapeError: 422,
    engine.InputError: 422,
    engine.ExecutionError: 500,
    engine.RunCancelledError: 504,
    engine.CompileError: 500,
}


class ConfigError(Exception):
    """A model's config.toml, labels or files are invalid; becomes the reason of its failed state."""

    def __str__(self) -> str:
        return cut(super().__str__(), _MESSAGE)


class ServiceError(Exception):
    """Base of all errors that clients get.

    Args:
        message: one sentence: where, what was found, what was expected.
        detail: the same as JSON for programs; left out when empty.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"

    def __init__(self, message: str, **detail: object) -> None:
        message = cut(message, _MESSAGE)
        super().__init__(message)
        self.message = message
        self.detail = {key: _bounded(value) for key, value in detail.items() if value is not None}

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that belong to the status."""
        return {}

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail:
            error["detail"] = self.detail
        return {"error": error}


class InvalidRequestError(ServiceError):
    """The request is malformed, for any model."""

    status, code = 400, "invalid_request"


class UnauthorizedError(ServiceError):
    """The request has no key, or an unknown one."""

    status, code = 401, "unauthorized"

    @property
    def headers(self) -> dict[str, str]:
        """Return WWW-Authenticate, as RFC 9110 section 11.6.1 requires."""
        return {"WWW-Authenticate": "Bearer"}


class ForbiddenError(ServiceError):
    """The key does not allow this request, or without keys the request comes from another machine."""

    status, code = 403, "forbidden"


class NotFoundError(ServiceError):
    """No route has this path."""

    status, code = 404, "not_found"


class ModelNotFoundError(NotFoundError):
    """The store has no model of this name."""

    code = "model_not_found"


class VersionNotFoundError(NotFoundError):
    """The model has no such version, or it is not served."""

    code = "version_not_found"


class SequenceNotFoundError(NotFoundError):
    """The model has no sequence of this id: it was not started, has ended, or was idle for too long."""

    code = "sequence_not_found"


class MethodNotAllowedError(ServiceError):
    """The path exists, but not for this method."""

    status, code = 405, "method_not_allowed"


class NotAcceptableError(ServiceError):
    """Accept names no format that this request can be answered in."""

    status, code = 406, "not_acceptable"


class RequestTimeoutError(ServiceError):
    """The client took too long to send its request."""

    status, code = 408, "request_timeout"


class UrlTooLongError(ServiceError):
    """The URL is over its limit."""

    status, code = 414, "url_too_long"


class HeadersTooLargeError(ServiceError):
    """The headers are over a limit, in number or in bytes."""

    status, code = 431, "headers_too_large"


class RequestTooLargeError(ServiceError):
    """A body, picture, tensor or batch is over its limit."""

    status, code = 413, "too_large"


class UnsupportedMediaTypeError(ServiceError):
    """The route does not accept this Content-Type or Content-Encoding."""

    status, code = 415, "unsupported_media_type"


class InputMismatchError(ServiceError):
    """The inputs are well-formed but do not fit the model."""

    status, code = 422, "input_mismatch"


class ModelLoadError(ServiceError):
    """A model that was loaded on demand cannot be served; the version served before stays."""

    status, code = 422, "load_failed"


class InferenceFailedError(ServiceError):
    """The model failed on an input that it should accept."""

    status, code = 500, "inference_failed"


class HookFailedError(ServiceError):
    """A function of the model's hooks.py failed, or returned what cannot be used."""

    status, code = 500, "hook_failed"


class InternalError(ServiceError):
    """A fault of the server."""

    status, code = 500, "internal"


class DeadlineExceededError(ServiceError):
    """The answer was not ready within the request's time."""

    status, code = 504, "deadline_exceeded"


class RetryLaterError(ServiceError):
    """Base of temporary errors, which carry Retry-After in whole seconds.

    Args:
        retry_after_ms: the same in milliseconds, where it is known more exactly.
    """

    def __init__(
        self, message: str, *, retry_after_s: int = 1, retry_after_ms: float | None = None, **detail: object
    ) -> None:
        super().__init__(message, **detail)
        self.retry_after_s = retry_after_s
        self.retry_after_ms = retry_after_ms

    @property
    def headers(self) -> dict[str, str]:
        """Return Retry-After (RFC 9110 section 10.2.3), and Retry-After-Ms with a fraction."""
        headers = {"Retry-After": str(self.retry_after_s)}
        if self.retry_after_ms is not None:
            headers["Retry-After-Ms"] = f"{self.retry_after_ms:.3f}"
        return headers


class QueueFullError(RetryLaterError):
    """The model's queue, or the memory for requests, is full."""

    status, code = 429, "queue_full"


class TooManySequencesError(RetryLaterError):
    """The limit of a model's sequences is reached."""

    status, code = 429, "too_many_sequences"


class TooManyConnectionsError(RetryLaterError):
    """The limit of open connections is reached."""

    status, code = 503, "too_many_connections"


class ModelNotReadyError(RetryLaterError):
    """The model is loading, has failed to load, or the server is stopping."""

    status, code = 503, "not_ready"


def from_engine(error: engine.EngineError | ConfigError, model_name: str) -> ServiceError:
    """Return the client's error for an error in a run; the caller logs the cause of a 500."""
    status = next((ENGINE_STATUS[cls] for cls in type(error).__mro__ if cls in ENGINE_STATUS), None)
    if status == DeadlineExceededError.status:
        return DeadlineExceededError(f"'{model_name}' did not answer within the request's time")
    if isinstance(error, engine.EngineError) and status == InputMismatchError.status:
        return InputMismatchError(str(error), where=error.where or None, found=error.found, expected=error.expected)
    return InferenceFailedError(f"model '{model_name}' failed on this input; see the server's log")


def _bounded(value: object) -> object:
    """Return a detail as bounded JSON: numbers of at most 64 bits, short texts, short lists."""
    if isinstance(value, str):
        return cut(value, _DETAIL)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 10**300 else "a very large number"
    if isinstance(value, (list, tuple)):
        return [_bounded(item) for item in value[:_ITEMS]]
    return value


def http_error(status: int, message: str, detail: Mapping[str, object] | None = None) -> ServiceError:
    """Return the error for a status that the framework raised."""
    known: dict[int, type[ServiceError]] = {
        cls.status: cls for cls in (NotFoundError, MethodNotAllowedError, RequestTooLargeError, InputMismatchError)
    }
    return known.get(status, InvalidRequestError if status < 500 else InternalError)(message, **(detail or {}))


class RefusedError(InvalidRequestError):
    """The protocol or the model does not allow what the request says."""
