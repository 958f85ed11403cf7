"""The demands of the protocol's pages on sessions, and on clients, with the tests that show them.

Of the pages *Session setup* and *Session list* each sentence, with the test where somebody else's
agent is behind `acphold wrap`, and the one with an agent of the library. Of what binds clients
each, with the test that shows that `acphold.connect` keeps it; so do `acphold ask`,
`acphold.testing` and the demo. Demands that only a screen can meet are left to the program's
callbacks.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Demand(NamedTuple):
    """A sentence, in our words; `word` is the protocol's own, such as MUST, if it has one.

    `shown` are tests, or the reason why there is none.
    """

    page: str
    word: str
    demand: str
    shown: tuple[str, ...]


SESSIONS: Final = (
    Demand(
        "Session setup",
        "MUST",
        "clients complete initialization before they create a session",
        (
            "server/test_initialize.py::test_anything_before_initialize_is_refused_and_told_why",
            "library/test_seed_documents.py::test_a_session_before_initialize_is_refused",
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`session/new` is answered with a unique id",
        (
            (
                "server/test_new.py::"
                "test_ids_are_unique_when_the_agent_counts_from_0_in_every_process"
            ),
            "library/test_seed_documents.py::test_every_new_session_has_an_id_of_its_own",
        ),
    ),
    Demand(
        "Session setup",
        "MAY",
        "the answer carries the initial modes",
        (
            (
                "server/test_new.py::"
                "test_modes_options_and_unknown_fields_of_the_answer_reach_the_client"
            ),
            "library/test_seed_documents.py::test_the_answer_to_new_carries_the_modes",
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "clients check `loadSession` before they load",
        (
            (
                "server/test_initialize.py::"
                "test_an_agent_without_any_capabilities_gets_those_of_acphold"
            ),
            (
                "library/test_seed_documents.py::"
                "test_load_list_resume_close_and_delete_are_advertised"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "MUST NOT",
        "an agent without `loadSession` is asked to load",
        (
            (
                "server/test_restore.py::"
                "test_else_by_a_new_session_that_gets_the_conversation_with_the_next_prompt"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`session/load` names the session, its MCP servers and its working directory",
        (
            "server/test_load.py::test_params_of_load_are_checked_as_those_of_new",
            (
                "library/test_seed_documents.py::"
                "test_load_takes_the_session_its_folder_and_its_servers"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "the entire conversation is replayed as `session/update`",
        (
            "server/test_load.py::test_load_replays_the_entire_conversation",
            "library/test_seed_documents.py::test_load_replays_the_entire_conversation",
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`session/load` is answered when all of it has been sent",
        (
            (
                "server/test_load.py::"
                "test_the_answer_follows_the_whole_replay_and_nothing_of_it_follows_the_answer"
            ),
            "library/test_seed_documents.py::test_load_is_answered_after_the_whole_replay",
        ),
    ),
    Demand(
        "Session setup",
        "",
        "the client then goes on as if the session had never been interrupted",
        (
            "server/test_connection.py::test_a_session_survives_its_processes_and_goes_on",
            "library/test_seed_documents.py::test_a_loaded_session_goes_on",
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`cwd` is an absolute path",
        (
            "server/test_new.py::test_cwd_must_be_absolute",
            "library/test_seed_documents.py::test_cwd_must_be_absolute",
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`cwd` is used wherever the agent's process was started",
        (
            (
                "server/test_new.py::"
                "test_a_command_on_path_is_handed_on_absolute_and_nothing_else_is_changed"
            ),
            (
                "library/test_seed_documents.py::"
                "test_the_sessions_cwd_counts_wherever_the_process_was_started"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "SHOULD",
        "`cwd` is a boundary for tools on the file system",
        (
            "the wrapped agent's own tools",
            "library/test_seed_documents.py::test_files_outside_of_the_roots_are_refused",
        ),
    ),
    Demand(
        "Session setup",
        "MAY",
        "clients name MCP servers",
        (
            (
                "server/test_new.py::"
                "test_http_and_sse_servers_are_relayed_to_an_agent_that_takes_them"
            ),
            "library/test_seed_documents.py::test_a_stdio_server_is_connected",
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "agents support MCP over stdio",
        (
            (
                "server/test_new.py::"
                "test_a_command_on_path_is_handed_on_absolute_and_nothing_else_is_changed"
            ),
            "library/test_seed_documents.py::test_a_stdio_server_is_connected",
        ),
    ),
    Demand(
        "Session setup",
        "SHOULD",
        "new agents support MCP over HTTP",
        (
            (
                "server/test_new.py::"
                "test_http_and_sse_servers_are_relayed_to_an_agent_that_takes_them"
            ),
            "library/test_seed_documents.py::test_an_http_server_is_connected",
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "clients check the capability before they name an HTTP or SSE server",
        (
            "server/test_new.py::test_an_mcp_server_that_cannot_be_used_is_refused_by_its_name",
            "library/test_seed_documents.py::test_http_and_sse_are_advertised",
        ),
    ),
    Demand(
        "Session setup",
        "MAY",
        "clients name a server of their own, to give the model tools",
        (
            (
                "server/test_new.py::"
                "test_a_command_on_path_is_handed_on_absolute_and_nothing_else_is_changed"
            ),
            "library/test_seed_documents.py::test_a_stdio_server_is_connected",
        ),
    ),
    Demand(
        "Session setup",
        "SHOULD",
        "agents connect to all servers that are named",
        (
            (
                "server/test_new.py::"
                "test_http_and_sse_servers_are_relayed_to_an_agent_that_takes_them"
            ),
            (
                "library/test_seed_documents.py::"
                "test_all_servers_are_connected_and_a_broken_one_is_reported"
            ),
        ),
    ),
    Demand(
        "Session list",
        "MUST",
        "clients initialize before they list",
        (
            "server/test_initialize.py::test_anything_before_initialize_is_refused_and_told_why",
            "library/test_seed_documents.py::test_a_session_before_initialize_is_refused",
        ),
    ),
    Demand(
        "Session list",
        "MUST",
        "clients check `sessionCapabilities.list`",
        (
            (
                "server/test_initialize.py::"
                "test_the_session_capabilities_are_the_agents_and_those_of_acphold"
            ),
            (
                "library/test_seed_documents.py::"
                "test_load_list_resume_close_and_delete_are_advertised"
            ),
        ),
    ),
    Demand(
        "Session list",
        "MUST NOT",
        "an agent that does not list is asked to",
        ("server/test_list.py::test_an_agent_that_does_not_list_is_not_asked",),
    ),
    Demand(
        "Session list",
        "",
        "all parameters are optional",
        (
            "server/test_list.py::test_list_needs_no_params",
            "library/test_seed_documents.py::test_list_needs_no_params",
        ),
    ),
    Demand(
        "Session list",
        "",
        "`cwd` is absolute, and only its sessions are returned",
        (
            "server/test_list.py::test_the_cwd_filter_shows_the_sessions_of_that_folder_only",
            "library/test_seed_documents.py::test_list_filters_by_cwd",
        ),
    ),
    Demand(
        "Session list",
        "MUST",
        "the answer is a list of sessions, with a cursor where there is more",
        (
            "server/test_list.py::test_pages_hold_50_and_the_cursor_leads_through_all_of_them",
            "library/test_seed_documents.py::test_list_is_paged_by_a_cursor",
        ),
    ),
    Demand(
        "Session list",
        "MUST",
        "no match is an empty array",
        (
            "server/test_list.py::test_no_sessions_is_an_empty_list",
            "library/test_seed_documents.py::test_no_sessions_is_an_empty_list",
        ),
    ),
    Demand(
        "Session list",
        "MUST",
        "clients take a missing `nextCursor` for the end",
        ("server/test_list.py::test_the_agents_own_list_is_asked_for_page_by_page",),
    ),
    Demand(
        "Session list",
        "MUST",
        "clients treat cursors as opaque",
        ("server/test_list.py::test_the_agents_own_list_is_asked_for_page_by_page",),
    ),
    Demand(
        "Session list",
        "SHOULD",
        "an invalid cursor is an error",
        (
            (
                "server/test_list.py::"
                "test_a_cursor_that_was_altered_is_unknown_or_of_another_filter_is_refused"
            ),
            "library/test_seed_documents.py::test_an_invalid_cursor_is_refused",
        ),
    ),
    Demand(
        "Session list",
        "SHOULD",
        "pages are of a reasonable size",
        (
            "server/test_list.py::test_pages_hold_50_and_the_cursor_leads_through_all_of_them",
            "library/test_seed_documents.py::test_list_is_paged_by_a_cursor",
        ),
    ),
    Demand(
        "Session list",
        "",
        "`session_info_update`: what is left out is unchanged, null clears",
        (
            "server/test_titles.py::test_a_partial_update_leaves_the_title_and_null_clears_it",
            "library/test_seed_documents.py::test_a_title_is_told_and_listed_and_null_clears_it",
        ),
    ),
    Demand(
        "Session list",
        "",
        "a title typically follows the first exchange",
        (
            (
                "server/test_titles.py::"
                "test_the_title_is_the_first_line_of_the_first_message_after_the_first_turn"
            ),
            "library/test_seed_documents.py::test_a_first_turn_gives_a_title",
        ),
    ),
    Demand(
        "Session list",
        "",
        "listing neither restores nor changes a session",
        (
            "server/test_list.py::test_loading_a_session_does_not_move_it",
            "library/test_seed_documents.py::test_listing_changes_nothing",
        ),
    ),
)

CLIENTS: Final = (
    Demand(
        "Session setup",
        "MUST",
        "initialization is completed before a session is created",
        (
            (
                "client/test_remote_agent.py::"
                "test_initialize_comes_first_and_says_who_we_are_and_what_we_can"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        (
            "`loadSession`, `sessionCapabilities.resume`, `close`, `list` and `delete` are "
            "checked before the method is called; MUST NOT be called without"
        ),
        (
            (
                "client/test_remote_agent.py::"
                "test_what_was_not_advertised_is_refused_before_anything_is_sent"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        (
            "`session/load` and `session/resume` name the session, its working directory "
            "and its MCP servers"
        ),
        (
            (
                "client/test_protocol_pages.py::"
                "test_load_and_resume_name_the_session_its_folders_and_its_servers"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "",
        "the replay is taken in whole before the session goes on, and apart from what is live",
        ("client/test_remote_agent.py::test_a_replay_is_apart_from_what_comes_live",),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`session/close` names the session",
        ("client/test_protocol_pages.py::test_a_loaded_session_goes_on_under_its_id",),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`cwd` and each additional directory are absolute paths",
        (
            (
                "client/test_remote_agent.py::"
                "test_paths_are_made_absolute_from_the_folder_of_the_program"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "additional directories are sent only to agents that advertise them",
        (
            (
                "client/test_remote_agent.py::"
                "test_what_was_not_advertised_is_refused_before_anything_is_sent"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "",
        "load and resume send the whole list of them again",
        (
            (
                "client/test_protocol_pages.py::"
                "test_a_session_of_the_list_is_opened_in_the_folders_that_the_list_has"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "",
        "the command of an MCP server is an absolute path",
        (
            (
                "client/test_remote_agent.py::"
                "test_paths_are_made_absolute_from_the_folder_of_the_program"
            ),
        ),
    ),
    Demand(
        "Session setup",
        "MUST",
        "`mcpCapabilities` is checked before an HTTP or SSE server is named",
        (
            (
                "client/test_remote_agent.py::"
                "test_what_was_not_advertised_is_refused_before_anything_is_sent"
            ),
        ),
    ),
    Demand(
        "Session list and session delete",
        "MUST NOT",
        "optional methods are tried without being advertised",
        (
            (
                "client/test_quirks.py::"
                "test_optional_methods_are_judged_by_what_was_advertised_and_not_by_trying"
            ),
        ),
    ),
    Demand(
        "Session list and session delete",
        "MUST",
        "a missing `nextCursor` is the end",
        (
            (
                "client/test_remote_agent.py::"
                "test_all_pages_are_listed_and_a_cursor_is_given_back_as_it_came"
            ),
        ),
    ),
    Demand(
        "Session list and session delete",
        "MUST",
        "cursors are neither parsed, changed nor kept",
        (
            (
                "client/test_remote_agent.py::"
                "test_all_pages_are_listed_and_a_cursor_is_given_back_as_it_came"
            ),
        ),
    ),
    Demand(
        "Session list and session delete",
        "MUST NOT",
        "`additionalDirectories` of a listed session is merged with what was known, or inferred",
        ("client/test_remote_agent.py::test_what_an_agent_lists_is_taken_as_it_is_each_time",),
    ),
    Demand(
        "Session list and session delete",
        "",
        "of `session_info_update`, what is left out is unchanged, null clears",
        (
            (
                "client/test_protocol_pages.py::"
                "test_a_title_that_is_left_out_stays_and_null_clears_it"
            ),
        ),
    ),
    Demand(
        "Initialization and authentication",
        "MUST",
        "`initialize` has the newest version that the client speaks",
        (
            (
                "client/test_remote_agent.py::"
                "test_initialize_comes_first_and_says_who_we_are_and_what_we_can"
            ),
        ),
    ),
    Demand(
        "Initialization and authentication",
        "SHOULD",
        "it has the client's name and version, and says what the client supports",
        (
            (
                "client/test_remote_agent.py::"
                "test_initialize_comes_first_and_says_who_we_are_and_what_we_can"
            ),
        ),
    ),
    Demand(
        "Initialization and authentication",
        "SHOULD",
        "an agent of a version that the client does not speak is left, and the person told",
        ("client/test_quirks.py::test_an_agent_that_insists_on_another_version_is_left",),
    ),
    Demand(
        "Initialization and authentication",
        "MUST",
        "capabilities that are left out are not supported",
        (
            (
                "client/test_remote_agent.py::"
                "test_what_was_not_advertised_is_refused_before_anything_is_sent"
            ),
        ),
    ),
    Demand(
        "Initialization and authentication",
        "SHOULD",
        "all combinations of capabilities are supported",
        ("client/test_remote_agent.py::test_what_was_advertised_is_sent",),
    ),
    Demand(
        "Initialization and authentication",
        "MUST NOT",
        "`logout` is called where it is not advertised",
        (
            (
                "client/test_remote_agent.py::"
                "test_what_was_not_advertised_is_refused_before_anything_is_sent"
            ),
        ),
    ),
    Demand(
        "Initialization and authentication",
        "MUST NOT",
        "`authenticate` is sent for a `terminal` method",
        (
            (
                "client/test_remote_agent.py::"
                "test_signing_in_takes_an_offered_method_that_is_not_for_a_terminal"
            ),
        ),
    ),
    Demand(
        "Initialization and authentication",
        "MUST",
        (
            "a `terminal` method runs the configured program with its `args` and `env`; "
            "the agent is started again when that has ended with 0"
        ),
        (
            (
                "cli/test_sign_in.py::"
                "test_a_way_for_a_terminal_is_gone_in_this_one_and_the_agent_begins_anew"
            ),
        ),
    ),
    Demand(
        "Initialization and authentication",
        "SHOULD",
        "sessions may fail because a sign-in is wanted",
        (
            (
                "client/test_remote_turn.py::"
                "test_a_sign_in_that_is_wanted_is_an_error_of_its_own_that_names_the_methods"
            ),
        ),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "MUST",
        "initialization and session setup come before prompts",
        (
            (
                "client/test_remote_agent.py::"
                "test_initialize_comes_first_and_says_who_we_are_and_what_we_can"
            ),
        ),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "MUST",
        "content is restricted to what the agent takes",
        (
            (
                "client/test_prompt_content.py::"
                "test_content_that_was_not_advertised_is_refused_before_anything_is_sent"
            ),
        ),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "MAY",
        "a turn is cancelled at any time",
        (
            (
                "client/test_remote_session.py::"
                "test_cancelling_marks_tools_at_once_and_takes_what_still_comes"
            ),
        ),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "SHOULD",
        "tool calls that are not finished are marked cancelled as soon as the turn is",
        (
            (
                "client/test_live_state.py::"
                "test_cancelling_marks_what_is_not_finished_until_the_agent_says_how_it_ended"
            ),
        ),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "MUST",
        "pending permission requests are answered `cancelled` then",
        (
            (
                "client/test_duties.py::"
                "test_what_is_pending_is_answered_as_cancelled_after_the_cancel"
            ),
        ),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "SHOULD",
        "tool call updates after `session/cancel` are taken",
        (
            (
                "client/test_remote_session.py::"
                "test_cancelling_marks_tools_at_once_and_takes_what_still_comes"
            ),
        ),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "MUST",
        "a plan replaces the one before completely",
        ("client/test_remote_session.py::test_the_state_has_plan_commands_usage_and_title",),
    ),
    Demand(
        "Prompt turn, plan, tool calls",
        "MAY",
        "permission is given or refused by settings of the person",
        (
            (
                "client/test_duties.py::"
                "test_a_policy_answers_by_the_kind_that_the_agent_gave_the_tool_before"
            ),
        ),
    ),
    Demand(
        "Modes, options, elicitation",
        "SHOULD",
        "where there are `configOptions`, they are used and `modes` are not",
        (
            (
                "client/test_remote_session.py::"
                "test_where_the_mode_is_an_option_too_the_option_is_set"
            ),
        ),
    ),
    Demand(
        "Modes, options, elicitation",
        "MUST",
        "missing and unknown categories do no harm",
        (
            (
                "client/test_remote_session.py::"
                "test_options_are_those_of_known_types_as_they_stand_last"
            ),
        ),
    ),
    Demand(
        "Modes, options, elicitation",
        "SHOULD",
        "options of an unknown type are ignored, and the agent's order is kept",
        (
            (
                "client/test_remote_session.py::"
                "test_options_are_those_of_known_types_as_they_stand_last"
            ),
        ),
    ),
    Demand(
        "Modes, options, elicitation",
        "SHOULD",
        "a form's values are checked before they are sent",
        ("client/test_duties.py::test_values_that_do_not_fit_are_not_sent",),
    ),
    Demand(
        "Modes, options, elicitation",
        "SHOULD",
        "a form begins with its defaults",
        (
            (
                "client/test_duties.py::"
                "test_a_form_is_filled_in_by_the_callback_and_gets_its_defaults"
            ),
        ),
    ),
    Demand(
        "Modes, options, elicitation",
        "MUST NOT",
        "a page is opened, or fetched, before the person agrees",
        ("client/test_duties.py::test_a_page_is_opened_only_by_someone_who_agrees",),
    ),
    Demand(
        "Modes, options, elicitation",
        "MUST",
        "`elicitation/complete` for an unknown or finished id does no harm",
        (
            (
                "client/test_duties.py::"
                "test_the_notification_that_a_page_has_been_dealt_with_is_passed_on_like_others"
            ),
        ),
    ),
    Demand(
        "Files, terminals, transport, extensions",
        "MUST",
        "a file that is written is made if it is not there",
        ("client/test_duties.py::test_files_are_served_inside_the_folders_of_the_session",),
    ),
    Demand(
        "Files, terminals, transport, extensions",
        "MUST",
        "a terminal's output is cut between characters",
        (
            (
                "workspace/test_terminals.py::"
                "test_the_end_of_a_long_output_is_kept_from_a_characters_beginning"
            ),
        ),
    ),
    Demand(
        "Files, terminals, transport, extensions",
        "MUST",
        "all paths are absolute",
        (
            (
                "client/test_remote_agent.py::"
                "test_paths_are_made_absolute_from_the_folder_of_the_program"
            ),
        ),
    ),
    Demand(
        "Files, terminals, transport, extensions",
        "MUST",
        "messages are UTF-8, one a line; nothing else is written to the agent",
        (
            (
                "client/test_protocol_pages.py::"
                "test_each_message_is_one_line_of_utf_8_whatever_is_said"
            ),
        ),
    ),
    Demand(
        "Files, terminals, transport, extensions",
        "MUST",
        "a request of an extension that is not known is answered with an error",
        (
            (
                "client/test_quirks.py::"
                "test_requests_and_notifications_of_others_are_answered_and_passed_over"
            ),
        ),
    ),
    Demand(
        "Files, terminals, transport, extensions",
        "SHOULD",
        "notifications that are not known are ignored",
        (
            (
                "client/test_quirks.py::"
                "test_requests_and_notifications_of_others_are_answered_and_passed_over"
            ),
        ),
    ),
    Demand(
        "Files, terminals, transport, extensions",
        "MUST NOT",
        "fields of one's own are added to types of the protocol",
        (
            (
                "client/test_protocol_pages.py::"
                "test_each_message_is_one_line_of_utf_8_whatever_is_said"
            ),
        ),
    ),
)
