"""A value that does not fit its setting, and how it is reported without showing secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from lexigram.config.errors import ConfigProblem
from lexigram.config.redact import is_secret_name, mask_url, resembles_secret_name
from lexigram.config.secrets import MASK, SecretStr
from lexigram.config.tree import (
    ENV_PREFIX,
    ConfigTrace,
    KeyPath,
    SecretText,
    key_text,
    variable_name,
)

SHOWN_LENGTH = 60  # characters of a value in an error: enough to find it, not to flood the screen

UNKNOWN_KEY = "unknown key"  # how the message of a setting that does not exist begins

NOTHING_TO_SHOW: Final = object()


class Fault(Exception):
    """One value that does not fit, or several below one value; never leaves the package."""

    def __init__(
        self,
        value: Any,
        message: str,
        *,
        options: Collection[str] = (),
        guess: str | None = None,
        secret: bool = False,
        parts: Sequence[Fault] = (),
    ) -> None:
        super().__init__(message)
        self.value = value
        self.message = message
        # Values that would be accepted: the nearest is suggested.
        self.options = options
        # The name that was probably meant.
        self.guess = guess
        self.secret = secret
        self.parts = parts
        self.path: KeyPath = ()

    @classmethod
    def of(cls, parts: Sequence[Fault]) -> Fault:
        """Several faults as one."""
        return cls(NOTHING_TO_SHOW, "several", parts=parts)

    def under(self, path: KeyPath, *, secret: bool = False) -> Iterator[Fault]:
        """This fault, or its parts, placed below ``path``."""
        self.path = (*path, *self.path)
        self.secret = self.secret or secret
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.under(self.path, secret=secret)

    def problem(self, trace: ConfigTrace) -> ConfigProblem:
        """What the reader of the error gets to see."""
        source, set_path = trace.place_of(self.path)
        guess = self.guess
        if guess is None and self.options and isinstance(self.value, str):
            guess = nearest(self.value, self.options)
        elif (
            guess is not None and source.startswith(ENV_PREFIX) and not guess.startswith(ENV_PREFIX)
        ):
            place = len(self.path) - 1
            guess = variable_name((*set_path[:place], guess, *set_path[place + 1 :]))
        return ConfigProblem(
            source=source,
            key=key_text(self.path),
            value=self._show_value(),
            message=self.message,
            suggestion=guess,
        )

    def _show_value(self) -> str | None:
        value = self.value
        named = any(isinstance(part, str) and is_secret_name(part) for part in self.path)
        if value is NOTHING_TO_SHOW:
            return None
        if self.secret or named or isinstance(value, SecretStr | SecretText):
            return MASK
        if isinstance(value, Mapping):
            return "{...}" if value else "{}"
        if isinstance(value, list | tuple | set | frozenset):
            return "[...]" if value else "[]"
        text = repr(mask_url(value)) if isinstance(value, str) else repr(value)
        return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."


def unknown(name: str, value: Any, known: Collection[str]) -> Fault:
    """A key that is not one of the known ones."""
    guess = nearest(name, known)
    listed = "" if guess or not known else f"; known here: {', '.join(sorted(known))}"
    secret = resembles_secret_name(name) or bool(guess and is_secret_name(guess))
    return Fault(value, f"{UNKNOWN_KEY}{listed}", guess=guess, secret=secret)


def unknown_key(
    path: KeyPath, value: Any, known: Collection[str], trace: ConfigTrace
) -> ConfigProblem | None:
    """The problem of a key that nothing declares; None for a variable that is ignored."""
    fault = unknown(str(path[-1]), value, known)
    fault.path = path
    return None if is_ignored(fault, trace) else fault.problem(trace)


def is_ignored(fault: Fault, trace: ConfigTrace) -> bool:
    """True for an unknown key that variables alone set and that resembles no setting.

    It is noted in the trace: LEX_ may be the prefix of other programs too. For any other unknown
    variable the fault gets the name that was probably meant.
    """
    if not fault.message.startswith(UNKNOWN_KEY):
        return False
    names = trace.variables_of(fault.path)
    if not names:
        return False
    fault.guess = _nearest_variable(fault.path, trace.models) or fault.guess
    if fault.guess is None:
        trace.ignored.update(names)
    return fault.guess is None


def nearest(name: str, known: Collection[str], cutoff: float = 0.6) -> str | None:
    """The known name that was probably meant, whatever the case."""
    from difflib import get_close_matches

    by_lower = {item.lower(): item for item in known}
    found = get_close_matches(name.lower(), by_lower, 1, cutoff)
    return by_lower[found[0]] if found else None


def _nearest_variable(path: KeyPath, models: Mapping[str, type[Any]]) -> str | None:
    """The variable that was meant where only the underscores differ: LEX_MAIL_HOST.

    In a name without ``__`` a letter may be wrong besides; in longer ones the section would make
    all of them similar.
    """
    from lexigram.config.describe import env_variables

    variables = [
        one.name for section, model in models.items() for one in env_variables(model, section)
    ]
    by_words = {
        name.removeprefix(ENV_PREFIX).lower().replace("__", "_"): name for name in variables
    }
    words = "_".join(str(part) for part in path).lower()
    found = nearest(words, by_words, 0.8) if len(path) == 1 else words
    return by_words.get(found or "")
