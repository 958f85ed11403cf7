"""Standing answers: which questions of an agent a person's rules answer, and which are asked."""

from acphold.standing.asked_actions import (
    Action,
    Edit,
    Run,
    Unclear,
    allow_once,
    asked_action,
    decoded_call,
    differs,
)
from acphold.standing.decision import MOST_ANSWERS, Circumstances, Verdict, decide
from acphold.standing.plain_commands import Command, Unreadable, read_line
from acphold.standing.rules import USUAL, Rule, RuleChange, flaw, read_rule

__all__ = [
    "MOST_ANSWERS",
    "USUAL",
    "Action",
    "Circumstances",
    "Command",
    "Edit",
    "Rule",
    "RuleChange",
    "Run",
    "Unclear",
    "Unreadable",
    "Verdict",
    "allow_once",
    "asked_action",
    "decide",
    "decoded_call",
    "differs",
    "flaw",
    "read_line",
    "read_rule",
]
