"""The rules of ACP as runnable cases that show which of them an agent keeps."""

from acphold.conformance.inspection import Report, chosen, inspect
from acphold.conformance.rules import CHECKS
from acphold.conformance.stage import Settings
from acphold.conformance.subject import MemorySubject, ProgramSubject, ServerSubject
from acphold.conformance.verdicts import Finding, Level, Rule, Source, Verdict

__all__ = [
    "CHECKS",
    "Finding",
    "Level",
    "MemorySubject",
    "ProgramSubject",
    "Report",
    "Rule",
    "ServerSubject",
    "Settings",
    "Source",
    "Verdict",
    "chosen",
    "inspect",
]
