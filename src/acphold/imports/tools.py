"""The agents' tools: what each is for, and the arguments of a call that people see.

Programs name the same tool alike, up to how they join its words: `read_file`, `readFile`. What one
of them shows otherwise stands in its reader.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from acphold.imports.content_blocks import diffs
from acphold.imports.values import Object, first_text, obj, objects


class Verb(NamedTuple):
    """The first word of a call's title, and its kind."""

    verb: str
    kind: str


PLANNING: Final = "Update the plan"
"""The verb of the tools whose arguments are the steps of a plan."""

_NAMES: Final = {
    Verb("", "execute"): "bash execute_command launch_process powershell run_commands run_tests"
    " run_in_terminal run_shell_command run_task run_terminal_cmd run_terminal_command shell"
    " terminal",
    Verb("Run code", "execute"): "execute_code",
    Verb("Process", "execute"): "process read_bash stop_bash write_bash",
    Verb("Kill", "execute"): "kill_process",
    Verb("Edit", "edit"): "applied_diff apply_diff apply_patch edit edit_file edit_files"
    " edit_notebook edited_existing_file insert_content insert_edit multi_edit multi_replace_string"
    " multi_replace_string_in_file notebook_edit patch reapply replace replace_in_file"
    " replace_string replace_string_in_file restore_file_from_disk search_and_replace"
    " search_replace str_replace str_replace_editor streaming_edit_file text_editor",
    Verb("Write", "edit"): "save_file write write_file write_to_file",
    Verb("Create", "edit"): "copy_path create create_directory create_file new_file_created",
    Verb("Change the skill", "edit"): "skill_manage",
    Verb("Delete", "delete"): "delete delete_file delete_path file_deleted remove_files",
    Verb("Move", "move"): "move_path",
    Verb("Read", "read"): "get_changed_files get_notebook_summary read read_file read_files"
    " read_many_files read_notebook_cell_output terminal_last_command test_failure view view_image",
    Verb("List", "read"): "list list_dir list_directory list_files list_files_recursive"
    " list_files_top_level ls",
    Verb("Output of", "read"): "get_terminal_output job_output read_process",
    Verb("Diagnostics of", "read"): "diagnostics get_errors lsp_diagnostics read_lints",
    Verb("Look at", "read"): "vision_analyze",
    Verb("Look at the page", "read"): "browser_snapshot",
    Verb("Read instructions", "read"): "fetch_instructions",
    Verb("Read the skill", "read"): "skill_view",
    Verb("List skills", "read"): "skills_list",
    Verb("Read the plan", "read"): "view_tasklist",
    Verb("Find", "search"): "file_search find find_files find_path find_test_files glob"
    " glob_file_search",
    Verb("Search", "search"): "codebase codebase_retrieval codebase_search find_text_in_files grep"
    " grep_search list_code_usages rg ripgrep_raw_search ripgrep_search search_codebase"
    " search_file_content search_files search_workspace_symbols semantic_search"
    " semantic_search_full sourcegraph",
    Verb("List definitions in", "search"): "list_code_definition_names",
    Verb("Search the web for", "fetch"): "google_web_search web_search",
    Verb("Fetch", "fetch"): "agentic_fetch fetch fetch_web_content fetch_web_page github_repo"
    " web_extract web_fetch",
    Verb("Browse", "fetch"): "browser_action browser_navigate",
    Verb("Download", "fetch"): "download",
    Verb("Task:", "think"): "execute_prompt execution_subagent invoke_agent run_subagent"
    " search_subagent spawn_agent subagent task",
    Verb("Agent:", "think"): "agent",
    Verb("Delegate", "think"): "delegate_task",
    Verb("Start a task", "think"): "new_task",
    Verb(PLANNING, "think"): "manage_todo_list todo todo_write todos update_plan",
    Verb("Plan", "think"): "create_plan",
    Verb("Think", "think"): "save_memory think thinking",
    Verb("Compact conversation", "think"): "summarize_task",
    Verb("Switch to mode", "switch_mode"): "switch_mode",
    Verb("Finish the task", "other"): "finish_task",
}


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


_TOOLS: Final = {_plain(name): tool for tool, names in _NAMES.items() for name in names.split()}

PATHS: Final = (
    "file_path", "filePath", "absolute_path", "relativeWorkspacePath", "targetFile", "target_file",
    "path", "source_path", "directoryPath", "targetDirectory", "target_directory",
    "relative_workspace_path", "target_notebook", "notebook_path",
)  # fmt: skip
"""Names of the argument with the file or folder that a tool works on."""

_SHOWN: Final = (
    "command", "regex", "pattern", "globPattern", "glob_pattern", "query", "searchTerm",
    "search_term", "information_request", "url", "image_url", "terminal_id", *PATHS, "glob",
    "label", "title", "description", "display_description", "instruction", "goal", "task", "prompt",
    "toMode", "target_mode_id", "mode", "tool_name", "name", "action",
)  # fmt: skip
"""Names of the argument in a call's title; the first one present."""

_OLD: Final = ("old_string", "oldString", "old_str", "oldText", "before", "old_content", "old_text")
_NEW: Final = (
    "new_string", "newString", "new_str", "newText", "after", "new_content", "new_text", "content",
    "contents", "file_text", "file_content", "code", "streamingContent",
)  # fmt: skip
"""Names of the text that an edit replaces, and of the one in its place."""


def tool_of(name: str) -> Verb:
    """Return the tool of this name; an unknown one is of kind `other`."""
    return _TOOLS.get(_plain(name)) or Verb(name.replace("_", " "), "other")


def call_fields(title: str, kind: str, arguments: object, *paths: str) -> Object:
    """Return the fields of a call, with the paths that are not empty as its locations."""
    fields: Object = {"title": title, "kind": kind, "rawInput": arguments}
    if places := [{"path": path} for path in paths if path]:
        fields["locations"] = places
    return fields


def named_call_fields(name: str, arguments: Object, *paths: str) -> Object:
    """Return the fields of a call of the tool with this name, as `call_fields`."""
    verb, kind = tool_of(name)
    title = f"{verb} {first_text(arguments, _SHOWN)}".strip() or name
    return call_fields(title, kind, arguments, *paths)


def edit_diffs(path: str, arguments: object) -> list[Object]:
    """Return the changes that an edit's arguments make: one, or several in a list of them.

    Without a path, those whose own arguments name one.
    """
    several = objects(arguments, "edits") or objects(arguments, "replacements")
    return [
        change
        for one in several or [obj(arguments)]
        if (where := path or first_text(one, PATHS))
        for change in diffs(where, first_text(one, _OLD), first_text(one, _NEW))
    ]
