"""The command line: ``lexigram`` and ``lex``."""

from lexigram.cli.errors import CliError, ContributorError, TargetError
from lexigram.cli.exit_codes import ExitCode
from lexigram.cli.output import Output
from lexigram.cli.session import Session

__all__ = ["CliError", "ContributorError", "ExitCode", "Output", "Session", "TargetError"]
