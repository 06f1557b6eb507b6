"""Every way a container, module or provider can be wrong, one class per code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lexigram.contracts.core.errors import LexigramError

if TYPE_CHECKING:
    from lexigram.di._problems import Problem


class ContainerError(LexigramError):
    """The container was used in a way its state does not allow."""

    code = "LEX_ERR_DI_001"


class DependencyError(ContainerError):
    """A service could not be built."""

    code = "LEX_ERR_DI_002"
    is_retryable = False


class CircularDependencyError(DependencyError):
    """Constructors need each other in a circle."""

    code = "LEX_ERR_DI_003"


class UnresolvableDependencyError(DependencyError, LookupError):
    """Nothing visible provides the service that was asked for."""

    code = "LEX_ERR_DI_004"


class RegistrationError(ContainerError):
    """A registration makes no sense: bad arguments, wrong lifetime, or too late."""

    code = "LEX_ERR_DI_005"
    is_retryable = False


class ContainerBuildError(ContainerError):
    """The object graph could not be put together."""

    code = "LEX_ERR_DI_006"
    is_retryable = False


class ProtocolValidationError(RegistrationError):
    """A class bound to a protocol lacks some of its members."""

    code = "LEX_ERR_DI_007"


class ContainerValidationError(ContainerBuildError):
    """Everything wrong with an object graph, found at once when it froze."""

    code = "LEX_ERR_DI_008"

    def __init__(self, problems: Sequence[Problem], *, title: str) -> None:
        super().__init__(title, details={"problems": [problem.to_dict() for problem in problems]})
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n\n".join(
            [f"[{self.code}] {self.message}", *(problem.render() for problem in self.problems)]
        )


class ScopedResolutionError(UnresolvableDependencyError):
    """A scoped service was asked for outside a scope, or would be kept by a singleton."""

    code = "LEX_ERR_DI_009"


class AmbiguousDependencyError(DependencyError):
    """Two bindings of one type are visible and one was asked for."""

    code = "LEX_ERR_DI_101"


class AsyncDependencyError(DependencyError):
    """Building the service needs ``await``, but it was asked for synchronously."""

    code = "LEX_ERR_DI_102"


class SignatureError(RegistrationError):
    """A constructor or factory has a parameter the container cannot understand."""

    code = "LEX_ERR_DI_103"


class RuntimeArgumentError(DependencyError):
    """A service takes arguments at run time and was asked for without them."""

    code = "LEX_ERR_DI_104"


class OverrideError(ContainerError):
    """An override would not reach everything that was built on the service."""

    code = "LEX_ERR_DI_105"
    is_retryable = False


class PromiseError(DependencyError):
    """A value announced with ``promise`` was not bound when it was needed."""

    code = "LEX_ERR_DI_106"
    is_retryable = True  # the provider that promised it may still boot


class ResourceError(ContainerError):
    """A generator resource broke the rules: no yield, a second yield, or death while in use."""

    code = "LEX_ERR_DI_107"


class ProviderError(LexigramError):
    """A provider failed; the text names it and the phase."""

    code = "LEX_ERR_PROV_001"

    def __init__(self, message: str, *, provider: str, phase: str, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.provider = provider
        self.phase = phase
        self.details |= {"provider": provider, "phase": phase}


class ModuleError(LexigramError):
    """A module declaration is wrong."""

    code = "LEX_ERR_MOD_001"
    is_retryable = False


class ModuleImportError(ModuleError, TypeError):
    """``imports`` or ``providers`` holds something that does not belong there."""

    code = "LEX_ERR_MOD_002"


class ModuleExportError(ModuleError):
    """A module exports what nobody registers."""

    code = "LEX_ERR_MOD_003"


class ModuleCycleError(ModuleError):
    """Modules import each other in a circle."""

    code = "LEX_ERR_MOD_004"


class ModuleVisibilityError(ModuleError):
    """The service exists, but the module that asks cannot see it."""

    code = "LEX_ERR_MOD_005"


class ModuleDuplicateError(ModuleError):
    """One module class is configured in two different ways."""

    code = "LEX_ERR_MOD_006"
