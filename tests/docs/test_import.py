"""The table of what programs do with conversations names each reader, and tells what it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from acphold import imports
from acphold.imports import NAMES, reader
from tests.docs.test_reference import DOCS
from tests.imports.every_reader import Said, found, write

LINES = (DOCS / "import.md").read_text("utf-8").splitlines()
TESTS = DOCS.parent / "tests/imports"
HEAD, _, *ROWS = (line.strip("|").split("|") for line in LINES if line.startswith("|"))


def test_each_reader_of_another_program_has_one_row() -> None:
    assert sorted(row[0] for row in ROWS) == sorted({*NAMES} - {"acphold"})


_LEFT = "other_kinds:a_newer_prompt_in_the_place_of_others_leaves_these_as_a_branch"
_EDITED = "every_order:where_the_first_prompt_was_edited_the_living_way_keeps_the_id"
_COUNTED = "counted_once:the_beginning_of_a_fork_counts_once"
_COPIED = "other_kinds:a_conversation_that_a_program_copied_is_told_with_its_beginning"
_UNTESTED = ""
"""Nothing about it is in what the program keeps, as far as we know."""

HOLDERS = {
    "back": {
        **dict.fromkeys(("claude", "codex", "copilot", "gemini", "pi", "qwen"), _LEFT),
        **dict.fromkeys(("cline", "cursor", "goose", "kilo", "roo", "zed"), _EDITED),
        "hermes": "hermes:what_a_person_took_back_or_never_said_is_no_prompt",
        "opencode": "opencode:what_is_reverted_is_told_until_a_newer_prompt_takes_its_place",
        "vscode": "vscode:requests_that_a_person_went_back_from_are_counted_and_those_of_a_machine"
        "_are_no_prompts",
    },
    "fork": {
        **dict.fromkeys(
            ("auggie", "claude", "codex", "copilot", "kilo", "opencode", "pi", "qwen"), _COUNTED
        ),
        **dict.fromkeys(("cline", "goose", "vscode"), _COPIED),
        "hermes": "hermes:a_branch_is_a_session_of_its_own",
    },
    "compact": {
        "acpx": _UNTESTED,
        "auggie": "auggie:only_what_a_person_typed_and_attached_is_a_prompt",
        "claude": "claude:a_compaction_is_a_call_behind_the_command_that_asked_for_it",
        "cline": _UNTESTED,
        "codex": "codex:a_compaction_before_any_prompt_of_its_turn_was_asked_for",
        "copilot": "copilot:a_compaction_that_was_asked_for_is_told_with_its_answer",
        "crush": "crush:a_plan_a_summary_a_picture_and_a_command_of_the_person_are_told",
        "cursor": _UNTESTED,
        "gemini": "gemini:after_a_compaction_the_whole_conversation_is_still_told_once",
        "goose": "goose:a_compaction_leaves_what_the_person_sees",
        "hermes": "hermes:what_is_written_down_again_behind_a_summary_is_told_once",
        "kilo": "opencode:a_compaction_is_told_as_the_person_asked_for_it",
        "opencode": "opencode:a_compaction_is_told_as_the_person_asked_for_it",
        "pi": "pi:the_name_a_summary_and_a_command_of_the_person_are_told",
        "qwen": "qwen:a_compaction_and_what_the_program_said_of_it_are_told",
        "roo": "roo:plans_searches_modes_and_summaries_are_told",
        "vscode": _UNTESTED,
        "zed": "zed:a_compaction_is_told_and_takes_nothing_away",
    },
    "several files": {
        "acpx": "acpx:segments_are_told_in_the_order_of_their_numbers",
        "claude": "reconciliation:a_file_that_another_conversation_was_written_into_is_of_the_one"
        "_that_goes_on",
        "codex": "codex_threads:a_thread_of_three_files_is_one_conversation",
        "gemini": "gemini:all_files_of_a_session_are_one_conversation",
        "hermes": "hermes:a_session_that_goes_on_with_another_is_one_with_it_and_a_subagent_is"
        "_none",
    },
    "migrated": {
        "claude": "claude:what_a_version_wrote_below_the_folder_of_settings_is_found",
        "cline": "cline:the_first_text_of_a_task_of_2024_is_the_prompt",
        "codex": "codex:a_rollout_of_summer_2025_is_told_from_the_models_side",
        "copilot": "every_order:each_turn_is_told_once_in_whatever_order_its_files_are_read",
        "crush": "crush:a_session_is_told_as_it_was_held",
        "cursor": "cursor:what_a_folder_held_whole_in_2024_is_told",
        "gemini": "gemini:the_one_document_of_older_versions_is_told",
        "goose": "goose:a_session_of_older_versions_is_a_file_of_lines",
        "kilo": "roo:tasks_are_found_in_every_editor_and_in_that_of_the_command_line",
        "opencode": "opencode:a_session_that_was_migrated_is_told_once",
        "pi": "pi:a_conversation_is_told_as_it_was_held",
        "qwen": "qwen:the_one_document_of_version_0_1_is_told",
        "vscode": "vscode:of_a_document_and_its_log_the_log_is_read",
        "zed": "zed:a_thread_of_2025_is_read",
    },
}
"""The test that holds what a column promises of a reader: its module and its name."""


@pytest.mark.parametrize("column", HOLDERS)
def test_what_the_table_promises_is_held_by_a_test(column: str) -> None:
    promised = {row[0] for row in ROWS if row[HEAD.index(column)] == "Y"}
    assert promised == HOLDERS[column].keys()
    for name, holder in HOLDERS[column].items():
        module, _, test = holder.partition(":")
        code = (TESTS / f"test_{module}.py").read_text("utf-8") if holder else ""
        assert not holder or re.search(rf"def test_{test}\(", code), holder
        assert not holder or name in code.lower() or "READERS)" in code, (name, holder)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_tells_what_its_reader_does(row: list[str], tmp_path: Path) -> None:
    name, told = row[0], dict(zip(HEAD, row, strict=True))
    assert told["back"] == "Y" or reader(name).branches is None
    modules = Path(imports.__file__).parent.glob(f"{name}*.py")  # none for one beside another
    code = "".join(path.read_text("utf-8") for path in modules)
    assert told["fork"] == "Y" or "facts.begun_as" not in code
    assert told["compact"] == "Y" or not ("compaction(" in code or "compacts=" in code)
    write(name, tmp_path, [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    (source,) = found(name, tmp_path)
    cut = {".jsonl": ["line"], ".md": ["line"], ".json": ["document"]}
    # A database loses nothing, but a step that its program had not begun to write.
    is_log = name in ("acpx", "vscode")  # beside a record; it kept documents before
    suffix = ".jsonl" if is_log else source.path.suffix
    assert told["versions"].strip()
    assert told["cut"] in cut.get(suffix, ["\N{EN DASH}", "a step", "document"])
