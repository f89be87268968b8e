"""Everything a client can be told, with its status, and the one table from the engine's errors to statuses.

ServiceError                      status  code
├─ InvalidRequestError            400     invalid_request       the request itself is malformed
├─ UnauthorizedError              401     unauthorized          no key, or one that is not known; with WWW-Authenticate
├─ ForbiddenError                 403     forbidden             the key is not good for this, or there is none
├─ NotFoundError                  404     not_found             no such route
│  ├─ ModelNotFoundError          404     model_not_found       the message lists the names there are
│  └─ VersionNotFoundError        404     version_not_found     the message lists the versions there are
├─ MethodNotAllowedError          405     method_not_allowed
├─ NotAcceptableError             406     not_acceptable        no answer of the kind Accept asks for
├─ RequestTimeoutError            408     request_timeout       headers or body did not arrive in time
├─ RequestTooLargeError           413     too_large             body, picture, tensor or batch over a limit
├─ UrlTooLongError                414     url_too_long
├─ UnsupportedMediaTypeError      415     unsupported_media_type
├─ InputMismatchError             422     input_mismatch        well-formed, but does not fit the model
├─ ModelLoadError                 422     load_failed           a model that was to be loaded cannot be served
├─ QueueFullError                 429     queue_full            with Retry-After
├─ HeadersTooLargeError           431     headers_too_large     too many, or too long
├─ InferenceFailedError           500     inference_failed      our fault; the reason is in the log only
├─ InternalError                  500     internal              our fault; the reason is in the log only
├─ ModelNotReadyError             503     not_ready             loading, failed or stopping; with Retry-After
├─ TooManyConnectionsError        503     too_many_connections  with Retry-After
└─ DeadlineExceededError          504     deadline_exceeded

Every body has one shape: ``{"error": {"code", "message", "detail"?}}``. No message names a path of the machine, and
none is longer than an answer to a mistake should be: whatever a client or a file wrote is cut where it is long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import engine
from app.messages import cut

_MESSAGE: Final = 4_000
_DETAIL: Final = 1_000
_ITEMS: Final = 1_000
# Every engine error a request can meet. What the caller's tensors cause is the caller's (422); so is what an expression
# or a parameter makes of them, for a model is served only after it has run. A run is cancelled when its time is up
# (504), the rest is ours.
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
    """A model's config.toml, labels or files do not fit; becomes the reason of the model's failed state."""

    def __str__(self) -> str:
        return cut(super().__str__(), _MESSAGE)


class ServiceError(Exception):
    """Base of everything a client can be told.

    Args:
        message: one sentence: where, what was found, what was expected.
        detail: the same for programs, JSON-able; left out when empty.
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
        """Headers that belong to the status."""
        return {}

    def body(self) -> dict[str, Any]:
        """The JSON body, the same shape for every error."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail:
            error["detail"] = self.detail
        return {"error": error}


class InvalidRequestError(ServiceError):
    """The request is malformed whatever the model is."""

    status, code = 400, "invalid_request"


class UnauthorizedError(ServiceError):
    """The request brings no key, or one that is not known."""

    status, code = 401, "unauthorized"

    @property
    def headers(self) -> dict[str, str]:
        """What to bring, as RFC 9110 section 11.6.1 asks."""
        return {"WWW-Authenticate": "Bearer"}


class ForbiddenError(ServiceError):
    """The server does this only for others: those whose key is good for it, or who run it."""

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


class MethodNotAllowedError(ServiceError):
    """The path exists, but not for this method."""

    status, code = 405, "method_not_allowed"


class NotAcceptableError(ServiceError):
    """Accept asks for a kind of answer this request has not."""

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
    """The Content-Type or Content-Encoding is not one the route takes."""

    status, code = 415, "unsupported_media_type"


class InputMismatchError(ServiceError):
    """The inputs are well-formed but do not fit the model."""

    status, code = 422, "input_mismatch"


class ModelLoadError(ServiceError):
    """A model that was to be loaded on demand cannot be served; what served before does."""

    status, code = 422, "load_failed"


class InferenceFailedError(ServiceError):
    """The model failed on an input it should have taken."""

    status, code = 500, "inference_failed"


class InternalError(ServiceError):
    """A fault of the server."""

    status, code = 500, "internal"


class DeadlineExceededError(ServiceError):
    """The answer was not ready within the request's time."""

    status, code = 504, "deadline_exceeded"


class RetryLaterError(ServiceError):
    """Base of the errors that go away by themselves: they carry Retry-After in whole seconds.

    Args:
        retry_after_ms: the same more exactly, where the time is known.
    """

    def __init__(
        self, message: str, *, retry_after_s: int, retry_after_ms: float | None = None, **detail: object
    ) -> None:
        super().__init__(message, **detail)
        self.retry_after_s = retry_after_s
        self.retry_after_ms = retry_after_ms

    @property
    def headers(self) -> dict[str, str]:
        """Retry-After, as RFC 9110 section 10.2.3 spells it, and Retry-After-Ms with a fraction."""
        headers = {"Retry-After": str(self.retry_after_s)}
        if self.retry_after_ms is not None:
            headers["Retry-After-Ms"] = f"{self.retry_after_ms:.3f}"
        return headers


class QueueFullError(RetryLaterError):
    """The model has as many requests waiting as it may."""

    status, code = 429, "queue_full"


class TooManyConnectionsError(RetryLaterError):
    """As many connections are at work as may be open."""

    status, code = 503, "too_many_connections"


class ModelNotReadyError(RetryLaterError):
    """The model is loading, has failed to load, or the server is stopping."""

    status, code = 503, "not_ready"


def from_engine(error: engine.EngineError | ConfigError, model_name: str) -> ServiceError:
    """What a client is told of an error met while running a model; the caller logs the cause of a 500."""
    status = next((ENGINE_STATUS[cls] for cls in type(error).__mro__ if cls in ENGINE_STATUS), None)
    if status == DeadlineExceededError.status:
        return DeadlineExceededError(f"'{model_name}' did not answer within the request's time")
    if isinstance(error, engine.EngineError) and status == InputMismatchError.status:
        return InputMismatchError(str(error), where=error.where or None, found=error.found, expected=error.expected)
    return InferenceFailedError(f"model '{model_name}' failed on this input; the server's log says why")


def _bounded(value: object) -> object:
    """A detail as JSON can hold it and an error should: numbers of at most 64 bits, short texts, lists that end."""
    if isinstance(value, str):
        return cut(value, _DETAIL)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 10**300 else "a very large number"
    if isinstance(value, (list, tuple)):
        return [_bounded(item) for item in value[:_ITEMS]]
    return value


def http_error(status: int, message: str, detail: Mapping[str, object] | None = None) -> ServiceError:
    """The ServiceError for a status the framework raised by itself."""
    known: dict[int, type[ServiceError]] = {
        cls.status: cls for cls in (NotFoundError, MethodNotAllowedError, RequestTooLargeError, InputMismatchError)
    }
    return known.get(status, InvalidRequestError if status < 500 else InternalError)(message, **(detail or {}))


class RefusedError(InvalidRequestError):
    """A request that says something the protocol or the model does not take."""
