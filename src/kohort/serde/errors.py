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

    what_to_do = "Read the text; `.status` and `.error_code` are those of the registry."

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

    what_to_do = "Wait and try again: no record is at fault. Check schema.registry.url if it never worked."

    retriable = True


class RegistryAccessDenied(RegistryError):
    """The registry refused the credentials, or they do not allow what was asked for."""

    what_to_do = "Check basic.auth.user.info or bearer.auth.token, and what they allow in the registry."


class SchemaNotFound(RegistryError):
    """The registry has no such schema id, subject or version."""

    what_to_do = (
        "Register the schema, or correct the subject or the id; a record of another registry has ids that"
        " mean nothing here."
    )


class SchemaRefused(RegistryError):
    """The registry does not take a schema, because it is invalid or not compatible with the subject's versions."""

    what_to_do = (
        "Make the schema compatible (give new fields a default), or change the subject's compatibility level."
    )


class DataMismatch(KohortError, ValueError):
    """Bytes that do not fit their format or schema, or an object that cannot be written with a schema."""

    what_to_do = (
        "Correct the data or the schema; for records that were read, a dead-letter topic keeps the rest "
        "going."
    )


class WrongSchema(KohortError, ValueError):
    """A schema that cannot be read, or that is of another kind than the format."""

    what_to_do = "Correct the schema as the text says."


class MissingPackage(KohortError, ImportError):
    """A package that is needed is not installed; the text says how to install it."""

    what_to_do = 'Install the package that the text names, usually `pip install "kohort[serde]"`.'
