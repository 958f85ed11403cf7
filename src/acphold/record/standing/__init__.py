"""Standing answers: which questions of an agent a person's rules answer, and which are asked."""

from acphold.record.standing.asked_actions import (
    Action,
    EditAction,
    RunAction,
    Unclear,
    allow_once,
    decode_call,
    differs,
    ran_lines,
    read_action,
)
from acphold.record.standing.decision import (
    MOST_ANSWERS,
    USUAL,
    Circumstances,
    RuleChange,
    RuleDecision,
    StandingRule,
    decide,
    flaw,
    leads_away,
    pausing_rule,
    read_rule,
)
from acphold.record.standing.programs import PlainCommand, UnreadableLine, read_line

__all__ = [
    "MOST_ANSWERS",
    "USUAL",
    "Action",
    "Circumstances",
    "EditAction",
    "PlainCommand",
    "RuleChange",
    "RuleDecision",
    "RunAction",
    "StandingRule",
    "Unclear",
    "UnreadableLine",
    "allow_once",
    "decide",
    "decode_call",
    "differs",
    "flaw",
    "leads_away",
    "pausing_rule",
    "ran_lines",
    "read_action",
    "read_line",
    "read_rule",
]
