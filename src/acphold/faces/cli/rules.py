"""`acphold rules`: list, make and revoke the rules that answer questions in advance."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from acphold.faces.cli import options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.journals import journal_if_any, sessions_here
from acphold.faces.cli.places import find_session
from acphold.faces.cli.terminal_text import (
    NO_TERMINAL,
    local,
    on_one_line,
    quantity,
    say,
    this_terminal,
    visible,
)
from acphold.journal.journal import Journal
from acphold.journal.lineage import rule_place
from acphold.known_agents import DEMO, KNOWN_AGENTS
from acphold.live.reading.inbox import Whose
from acphold.live.reading.json_facts import rule_json
from acphold.live.reading.local_reader import LocalReader, note_deed
from acphold.live.reading.rule_offers import (
    AllowsRefusedError,
    PastQuestion,
    add_rules,
    past_question,
    past_questions,
)
from acphold.safety.errors import RuleError
from acphold.safety.standing.asked_actions import RunAction
from acphold.safety.standing.decision import (
    DAY,
    RuleChange,
    StandingRule,
    read_rule,
    rule_text,
)
from acphold.safety.standing.folders import real

DEEDS = ("list", "add", "rm", "off", "on", "why")

MOST_DAYS = 36_500
"""Most days for a rule: a date has a year of four digits."""

WAITS = "of another journal or machine: waits for `acphold rules on`"

QUESTION_ID = re.compile(r"[0-9a-f]{16}")


def _quoted(arguments: Sequence[str]) -> str:
    """Return the hint for a rule whose command has options and is not quoted."""
    if len(arguments) < 2 or arguments[0] != "add" or " " in arguments[1]:
        return ""
    text = rule_text(arguments[1:])
    try:
        read_rule(text)
    except RuleError as error:
        return f"{text}: {error}"
    return f"did you mean: acphold rules add {shlex.quote(text)}?"


@command(
    *("rules", "[OPTIONS] [list|add|rm|off|on|why [WORDS...]]", options.JOURNAL),
    meant=_quoted,
)
async def rules(
    *,
    deed: str = options.argument(
        "DO",
        "add RULE; rm N...; off; on; why ID",
        nargs="?",
        default="list",
        choices=DEEDS,
    ),
    words: list[str] = options.argument("WORDS", "arguments of DO; see above", nargs="*"),
    cwd: str | None = options.value(
        "DIR", "add: the folder of the sessions it is for [default: this one]"
    ),
    agent: str | None = options.value("NAME", "add: only for this agent"),
    session: str | None = options.value("ID", "add: only for this session, until it is revoked"),
    days: int = options.value("N", "add: expires after N days [default: 30]", default=30),
    for_good: bool = options.flag("add: until it is revoked"),
    watch: bool = options.flag("add: only record what it would have answered"),
    although: bool = options.flag("add: even if it would have allowed something you refused"),
    user: str | None = options.value("NAME", "the rules of a user of `serve`"),
    json: bool = options.flag("list: JSON, one line for each rule"),
) -> int:
    """Answer an agent's questions in advance.

    A rule allows exactly one command (`acphold rules add 'run make check'`), or a program that
    acphold knows with any harmless options (`add 'run pytest ...'`), in the sessions here, for 30
    days. Edits are always asked about, unless you choose a mode of the agent for them. After `add
    'ask run git push ...'` you are asked, whatever another rule allows. You are also asked about
    everything that acphold is not sure about. A rule applies to every agent and client. It answers
    "allow once", and the conversation shows which rule answered.

    `list` shows the rules, `rm N` revokes one at once in every process, `off` and `on` switch
    all of them. After a restore, in a copy of a journal and on another machine that shares it,
    the rules wait until you have switched them on there. `why ID` shows what the rules would do
    today with a question, or with each decided one of a session, and what they did then. A rule
    that would have allowed something you refused is only added with --although. A rule is no
    sandbox: `acphold help reference` describes its
    limits.
    """
    person = user or ""
    match deed:
        case "list" | "off" | "on" if words:
            raise UsageError(f"`rules {deed}` takes no arguments")
        case "add":
            if not words:
                raise UsageError("give the rule: acphold rules add 'run pytest ...'")
            if agent is not None and agent not in (*KNOWN_AGENTS, DEMO):
                raise UsageError(f"--agent: one of {', '.join(sorted(KNOWN_AGENTS))}")
            if days > MOST_DAYS:
                raise UsageError(f"--days: at most {MOST_DAYS:,}; `--for-good` has no end")
            text, folder = rule_text(words), real(cwd or os.getcwd())
            try:
                rule = read_rule(text)
            except RuleError as error:
                raise UsageError(f"{text}: {error}") from None
            rule = replace(
                rule,
                agent=agent or "",
                person=person,
                watches=watch,
                made_with=this_terminal(),
            )
            if rule.verdict == "allow" or cwd is not None:
                rule = replace(rule, folder=folder)
        case "rm" if not words or not all(re.fullmatch("[0-9]{1,9}", it) for it in words):
            raise UsageError("name rules by their numbers: acphold rules rm 3")
        case "why" if len(words) != 1:
            raise UsageError("name a session or a question: acphold rules why ID")
    if deed == "list":
        async with journal_if_any() as found:
            await _list(found, person, json=json)
        return Exit.OK
    async with sessions_here() as (reader, kept):
        now = kept.now_ms()
        if deed == "add":
            lasts = 0 if for_good or session else now + days * DAY
            rule = replace(rule, made_at=now, expires_at=lasts)
        match deed:
            case "add":
                await _add(reader, kept, rule, session, although=although)
            case "rm":
                numbers = [int(word) for word in words]
                known = {it.number for it in await kept.access.rules(person) if not it.ended_at}
                if missing := [number for number in numbers if number not in known]:
                    raise UsageError(f"there is no rule {missing[0]}; see `acphold rules`")
                end = RuleChange(ended_at=now)
                for ended in await kept.access.change_rules(person, numbers, end):
                    await note_deed(kept, "revoke rule", ended.text)
                    print(f"revoked: {visible(on_one_line(ended.sentence))}")
            case "off" | "on":
                await _switch(kept, person, is_off=deed == "off")
            case "why":
                await _why(reader, kept, person, words[0])
    return Exit.OK


async def _add(
    reader: LocalReader,
    journal: Journal,
    rule: StandingRule,
    session: str | None,
    *,
    although: bool,
) -> None:
    if session is not None:
        row = await find_session(reader, session)
        rule = replace(rule, session=row.session_id, folder=real(row.cwd))
    try:
        [added] = await add_rules(journal, [rule], although=although)
    except AllowsRefusedError as error:
        for each in error.questions[:10]:
            print(_line("you refused", each))
        raise UsageError(f"{error}; to add it anyway, use --although") from None
    await note_deed(journal, "add rule", added.text)
    print(_describe(added, added.places[0]))
    print(f"   {visible(added.meaning)}")


async def _switch(journal: Journal, user: str, *, is_off: bool) -> None:
    change = RuleChange(is_off=is_off)
    if not is_off:
        change = replace(change, place=await rule_place(journal))
    changed = await journal.access.change_rules(user, None, change)
    now = journal.now_ms()
    count = sum(rule.is_live(now) for rule in changed)
    await note_deed(journal, "rules off" if is_off else "rules on", "")
    print(f"{quantity(count, 'rule')} {'off' if is_off else 'on'}")


async def _list(journal: Journal | None, user: str, *, json: bool) -> None:
    found = [] if journal is None else await journal.access.rules(user)
    place = "" if journal is None else await rule_place(journal)
    live = [] if journal is None else [it for it in found if it.is_listed(journal.now_ms())]
    for rule in live:
        print(rule_json(rule, place) if json else _describe(rule, place))
    here = this_terminal()
    new = [rule.number for rule in live if rule.is_unseen_at(here)]
    # A program that reads this does not mean that a person has seen the new rules.
    if journal is not None and new and not json and here != NO_TERMINAL:
        await journal.access.change_rules(user, new, RuleChange(is_seen=True))
    if not live and not json:
        print("No rules. You are asked every question.")


async def _why(reader: LocalReader, journal: Journal, user: str, given: str) -> None:
    any_found = False
    modes: dict[str, str] = {}
    async for each in _questions(reader, journal, user, given):
        any_found, session, came = True, each.asked.row.session_id, each.asked.decided
        if session not in modes:
            modes[session] = (await journal.summary(session)).attributes.mode_words
        rules = await journal.access.rules(user or each.asked.row.tenant)
        known = [rule for rule in rules if not rule.watches]
        verdict = each.judge(known, now=journal.now_ms(), mode=modes[session])
        print(_line("allow" if verdict.allows else "ask", each))
        print(f"   {visible(on_one_line(verdict.why))}")
        if came is not None and came.rules:
            print(f"   then: answered by your rule {' and '.join(map(str, came.rules))}")
        elif came is not None and came.unruled and came.unruled != verdict.why:
            say(on_one_line(f"   then: {came.unruled}"))
        elif each.decided:
            print(f"   then: you {each.decided} it")
    if not any_found:
        print("No question of this session has been decided.")


async def _questions(
    reader: LocalReader, journal: Journal, user: str, given: str
) -> AsyncIterator[PastQuestion]:
    """Yield the question with this id, or the decided ones of the session that it names."""
    if QUESTION_ID.fullmatch(given):
        for open_one in await reader.questions():
            if open_one.question.id == given:
                yield await past_question(journal, open_one)
                return
        async for each in past_questions(journal, 0, Whose(user or None)):
            if each.asked.question.id == given:
                yield each
                return
    row = await find_session(reader, given, "explains it", by_words="found")
    async for each in past_questions(journal, 0, Whose(session_id=row.session_id)):
        yield each


def _describe(rule: StandingRule, place: str) -> str:
    marks = [
        rule.meaning if rule.why_over else "",
        "" if rule.holds_at(place) else WAITS,
        "off" if rule.is_off and rule.verdict == "allow" else "",
        "only watches" if rule.watches else "",
        "" if rule.is_seen else f"new, made with {rule.made_with or 'an unknown program'}",
    ]
    until = f"until {local(rule.expires_at)}" if rule.expires_at else "until revoked"
    parts = [
        f"{rule.number}  {rule.sentence} ({until})",
        rule.folder or "everywhere",
        *([f"session {rule.session}"] if rule.session else []),
        f"used {quantity(rule.uses, 'time')}",
        *filter(None, marks),
    ]
    return visible(" · ".join(map(on_one_line, parts)))


def _line(said: str, each: PastQuestion) -> str:
    asked = " ; ".join(each.action.lines) if isinstance(each.action, RunAction) else each.asked.asks
    return visible(on_one_line(f"{local(each.asked.at)}  {said:<12} {asked}"))
