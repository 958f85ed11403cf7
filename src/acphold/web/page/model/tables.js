// Made by `make docs` of what the terminal shows with: change it there.
export const HIDDEN = /[\u{0}-\u{8}\u{b}-\u{1f}\u{7f}-\u{9f}\u{61c}\u{200e}\u{200f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{ad}\u{34f}\u{600}-\u{605}\u{6dd}\u{70f}\u{890}\u{891}\u{8e2}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{2028}\u{2029}\u{2060}-\u{206f}\u{2800}\u{3164}\u{fe00}-\u{fe0f}\u{feff}\u{ffa0}\u{fff0}-\u{fffb}\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]+/gu;
export const IN_PLACE = /(?:(?<=[\u{a9}\u{ae}\u{203c}\u{2049}\u{2122}\u{2139}\u{2190}-\u{2bff}\u{3030}\u{303d}\u{3297}\u{3299}\u{1f000}-\u{1faff}])|(?<=[\u{a9}\u{ae}\u{203c}\u{2049}\u{2122}\u{2139}\u{2190}-\u{2bff}\u{3030}\u{303d}\u{3297}\u{3299}\u{1f000}-\u{1faff}]\u{fe0f}))\u{200d}(?=[\u{a9}\u{ae}\u{203c}\u{2049}\u{2122}\u{2139}\u{2190}-\u{2bff}\u{3030}\u{303d}\u{3297}\u{3299}\u{1f000}-\u{1faff}])|(?<=[\u{a9}\u{ae}\u{203c}\u{2049}\u{2122}\u{2139}\u{2190}-\u{2bff}\u{3030}\u{303d}\u{3297}\u{3299}\u{1f000}-\u{1faff}])[\u{fe0e}\u{fe0f}]|(?<=[0-9#*])\u{fe0f}(?=\u{20e3})|(?<=[\u{620}-\u{109f}\u{1780}-\u{17b3}\u{17b6}-\u{180a}\u{1810}-\u{18af}\u{a840}-\u{abff}\u{fb50}-\u{fdff}\u{fe70}-\u{fefc}])[\u{200c}\u{200d}](?![\u{ad}\u{34f}\u{600}-\u{605}\u{6dd}\u{70f}\u{890}\u{891}\u{8e2}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{2028}\u{2029}\u{2060}-\u{206f}\u{2800}\u{3164}\u{fe00}-\u{fe0f}\u{feff}\u{ffa0}\u{fff0}-\u{fffb}\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}])|[\u{600}-\u{605}\u{6dd}\u{70f}\u{890}\u{891}\u{8e2}](?=[\u{660}-\u{669}\u{6f0}-\u{6f9}\u{710}-\u{72f}])|(?<=[\u{3400}-\u{9fff}\u{f900}-\u{faff}\u{20000}-\u{3ffff}])[\u{fe00}-\u{fe02}\u{e0100}-\u{e01ef}]|(?<=[\u{1820}-\u{18aa}])[\u{180b}-\u{180f}]|(?<=\u{1f3f4})\u{e0067}\u{e0062}(?:\u{e0065}\u{e006e}\u{e0067}|\u{e0073}\u{e0063}\u{e0074}|\u{e0077}\u{e006c}\u{e0073})\u{e007f}/uy;
export const INEXACT = /[\u{0}-\u{8}\u{b}-\u{1f}\u{7f}-\u{9f}\u{61c}\u{200e}\u{200f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{ad}\u{34f}\u{600}-\u{605}\u{6dd}\u{70f}\u{890}\u{891}\u{8e2}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{2028}\u{2029}\u{2060}-\u{206f}\u{2800}\u{3164}\u{fe00}-\u{fe0f}\u{feff}\u{ffa0}\u{fff0}-\u{fffb}\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}\u{a0}\u{1680}\u{2000}-\u{200a}\u{202f}\u{205f}\u{3000}]/gu;
/** @type {Record<string, string>} */
export const STATUSES = Object.assign(Object.create(null), {"pending": "waiting", "in_progress": "running", "completed": "done", "failed": "failed"});
/** @type {Record<string, string>} */
export const STEPS = Object.assign(Object.create(null), {"pending": "to do", "in_progress": "now", "completed": "done"});
/** @type {Record<string, string>} */
export const KINDS = Object.assign(Object.create(null), {"read": "Read", "edit": "Edit", "delete": "Delete", "move": "Move", "search": "Search", "execute": "Run", "think": "Think", "fetch": "Fetch", "switch_mode": "Mode"});
/** @type {Record<string, string>} */
export const ENDINGS = Object.assign(Object.create(null), {"limited": "stopped at a limit", "refused": "refused", "cancelled": "cancelled", "failed": "failed", "interrupted": "interrupted", "unanswered": "no answer"});
/** @type {Record<string, string>} */
export const DECIDED = Object.assign(Object.create(null), {"allow_once": "allowed once", "allow_always": "always allowed", "reject_once": "rejected", "reject_always": "always rejected", "accept": "accepted", "decline": "declined", "cancel": "cancelled", "cancelled": "not answered", "refused": "refused", "rejected": "rejected: nobody could answer", "expired": "expired", "withdrawn": "withdrawn", "interrupted": "interrupted", "elsewhere": "settled without an answer from here"});
/** @type {Record<string, string>} */
export const COMPACTIONS = Object.assign(Object.create(null), {"in_progress": "is being compacted", "completed": "compacted", "failed": "not compacted", "cancelled": "not compacted: cancelled"});
/** @type {Record<string, string>} */
export const AT_WORK = Object.assign(Object.create(null), {"running": "at work", "created": "at work", "paused": "paused", "requires_action": "waits for an answer"});
/** @type {Record<string, string>} */
export const DONE = Object.assign(Object.create(null), {"end_turn": "done", "cancelled": "cancelled", "error": "failed", "refusal": "refused"});
/** @type {Record<string, string>} */
export const SPEAKERS = Object.assign(Object.create(null), {"user": "You", "agent": "Agent", "thought": "Thought"});
/** @type {Record<string, string>} */
export const HELD = Object.assign(Object.create(null), {"person": "paused", "failed": "paused: the last turn failed", "refused": "paused: the agent refused the last prompt", "cancelled": "paused: stopped", "interrupted": "paused: the last turn was interrupted", "limited": "paused: a limit was reached", "reopened": "paused: the session was reopened", "elsewhere": "paused: planned elsewhere, not in this journal", "terms": "paused: load it in a client that chooses its provider or sign-in again"});
/** @type {Record<string, string>} */
export const ROLES = Object.assign(Object.create(null), {"user_message_chunk": "user", "agent_message_chunk": "agent", "agent_thought_chunk": "thought"});
/** @type {Record<string, string>} */
export const OUTCOMES = Object.assign(Object.create(null), {"max_tokens": "limited", "max_turn_requests": "limited", "refusal": "refused", "cancelled": "cancelled"});
/** @type {Record<string, string>} */
export const ENDED = Object.assign(Object.create(null), {"completed": "end_turn", "failed": "error", "disconnected": "error", "cancelled": "cancelled", "stopped": "cancelled", "interrupted": "cancelled"});
/** @type {Record<string, string>} */
export const WRITTEN = Object.assign(Object.create(null), {"yes": "y", "ok": "y", "allow": "y", "no": "n", "reject": "n"});
export const ACCEPTS_EDITS = ["acceptedits", "autoaccept", "autoedit"];
export const CUT = {"code": 12, "short": 40, "name": 60, "brief": 80, "part": 120, "title": 240, "words": 300, "long": 400, "most": 1000, "offer": 10000};
export const SHOWN = {"text": 20000, "output": 60000, "lastOutput": 4000, "diffLines": 5000, "patchLines": 100, "morePatchLines": 5000};
export const PATH = [60, 120];
export const SPEAKS_OF_CHILDREN = ["session_message", "session_message_chunk", "subagent_spawned", "subagent_state_update", "subagent_update"];
export const LASTING = ["agent_message_chunk", "agent_thought_chunk", "compaction_update", "session_message", "session_message_chunk", "subagent_spawned", "subagent_state_update", "subagent_update", "tool_call", "tool_call_update", "user_message_chunk"];
export const PAGE = "acphold-page";
export const TOLD = "as reported by the agent";
