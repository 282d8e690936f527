"""The exceptions of serializers, deserializers and the schema registry; all are KohortError.

KohortError
├── RegistryError               the registry did not do what it was asked for; `.retriable`, `.status`, `.error_code`
│   ├── RegistryUnavailable       no answer, or "not now" (429, 5xx) after all retries; the next try may work
│   ├── RegistryAccessDenied      the registry refused the credentials (401, 403)
│   ├── SchemaNotFound            no such schema id, subject or version (404)
│   └── SchemaRefused             the registry does not take a schema: incompatible (409) or invalid (422)
├── DataMismatch                bytes or an object that do not fit the format or the schema; a ValueError
├── WrongSchema                 a schema that cannot be read, or that is of another kind; a ValueError
└── MissingPackage              a package that a format needs is not installed; an ImportError
"""

from __future__ import annotations

from kohort.errors import KohortError


class RegistryError(KohortError):
    """The schema registry did not do what it was asked for.

    `retriable` says whether the same call may work later; `status` is the HTTP status and `error_code` the registry's
    own code, where there was an answer that has them.
    """

    retriable = False

    def __init__(self, message: str, *, status: int | None = None, error_code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles with its attributes, so that it arrives whole from another process."""
        return _made_again, (type(self), str(self), self.status, self.error_code)


def _made_again(
    kind: type[RegistryError], message: str, status: int | None, error_code: int | None
) -> RegistryError:
    return kind(message, status=status, error_code=error_code)


class RegistryUnavailable(RegistryError):
    """The registry could not be reached, or could not answer now; no record is at fault, and a later try may work."""

    retriable = True


class RegistryAccessDenied(RegistryError):
    """The registry refused the credentials, or they do not allow what was asked for."""


class SchemaNotFound(RegistryError):
    """The registry has no such schema id, subject or version."""


class SchemaRefused(RegistryError):
    """The registry does not take a schema, because it is invalid or not compatible with the subject's versions."""


class DataMismatch(KohortError, ValueError):
    """Bytes that do not fit their format or schema, or an object that cannot be written with a schema."""


class WrongSchema(KohortError, ValueError):
    """A schema that cannot be read, or that is of another kind than the format."""


class MissingPackage(KohortError, ImportError):
    """A package that is needed is not installed; the text says how to install it."""
