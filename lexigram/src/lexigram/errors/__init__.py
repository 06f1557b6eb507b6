"""Every error class of the core in one place; each code has exactly one class."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexigram.app.errors import ApplicationError, AppShutdownError, AppStartupError
    from lexigram.concurrency.errors import CallAbortedError
    from lexigram.config.errors import ConfigSourceError
    from lexigram.contracts.core.errors import (
        ConfigurationError,
        DomainError,
        InfrastructureError,
        LexigramError,
        NotFoundError,
    )
    from lexigram.contracts.core.idempotency import IdempotencyError
    from lexigram.contracts.core.lock import LockConflictError, LockError, LockLostError
    from lexigram.contracts.core.result import UnwrapError
    from lexigram.contracts.events.errors import EventError
    from lexigram.di.errors import (
        AmbiguousDependencyError,
        AsyncDependencyError,
        CircularDependencyError,
        ContainerBuildError,
        ContainerError,
        ContainerValidationError,
        DependencyError,
        ModuleCycleError,
        ModuleDuplicateError,
        ModuleError,
        ModuleExportError,
        ModuleImportError,
        ModuleVisibilityError,
        OverrideError,
        PromiseError,
        ProtocolValidationError,
        ProviderError,
        RegistrationError,
        ResourceError,
        RuntimeArgumentError,
        ScopedResolutionError,
        SignatureError,
        UnresolvableDependencyError,
    )
else:
    from lexigram.contracts._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "lexigram.app.errors": ["ApplicationError", "AppShutdownError", "AppStartupError"],
            "lexigram.concurrency.errors": ["CallAbortedError"],
            "lexigram.config.errors": ["ConfigSourceError"],
            "lexigram.contracts.core.errors": [
                "ConfigurationError",
                "DomainError",
                "InfrastructureError",
                "LexigramError",
                "NotFoundError",
            ],
            "lexigram.contracts.core.idempotency": ["IdempotencyError"],
            "lexigram.contracts.core.lock": ["LockConflictError", "LockError", "LockLostError"],
            "lexigram.contracts.core.result": ["UnwrapError"],
            "lexigram.contracts.events.errors": ["EventError"],
            "lexigram.di.errors": [
                "AmbiguousDependencyError",
                "AsyncDependencyError",
                "CircularDependencyError",
                "ContainerBuildError",
                "ContainerError",
                "ContainerValidationError",
                "DependencyError",
                "ModuleCycleError",
                "ModuleDuplicateError",
                "ModuleError",
                "ModuleExportError",
                "ModuleImportError",
                "ModuleVisibilityError",
                "OverrideError",
                "PromiseError",
                "ProtocolValidationError",
                "ProviderError",
                "RegistrationError",
                "ResourceError",
                "RuntimeArgumentError",
                "ScopedResolutionError",
                "SignatureError",
                "UnresolvableDependencyError",
            ],
        },
    )

__all__ = [
    "AmbiguousDependencyError",
    "AppShutdownError",
    "AppStartupError",
    "ApplicationError",
    "AsyncDependencyError",
    "CallAbortedError",
    "CircularDependencyError",
    "ConfigSourceError",
    "ConfigurationError",
    "ContainerBuildError",
    "ContainerError",
    "ContainerValidationError",
    "DependencyError",
    "DomainError",
    "EventError",
    "IdempotencyError",
    "InfrastructureError",
    "LexigramError",
    "LockConflictError",
    "LockError",
    "LockLostError",
    "ModuleCycleError",
    "ModuleDuplicateError",
    "ModuleError",
    "ModuleExportError",
    "ModuleImportError",
    "ModuleVisibilityError",
    "NotFoundError",
    "OverrideError",
    "PromiseError",
    "ProtocolValidationError",
    "ProviderError",
    "RegistrationError",
    "ResourceError",
    "RuntimeArgumentError",
    "ScopedResolutionError",
    "SignatureError",
    "UnresolvableDependencyError",
    "UnwrapError",
]
