// What was said and done in a session, folded from entries of the journal and from updates as they
// come. An item is changed in its place; its `version` tells a view that it was.
//
// A timeline begins anywhere: a page of the journal may begin in the middle of a message or of a
// tool call. When the page before it comes, the two halves are put together (`prepend`).
import { Prose } from "./prose.js";

/**
 * @typedef {{type: string, text?: string, data?: string, mimeType?: string, uri?: string, name?: string, resource?: any}} Content
 *
 * @typedef {object} Base
 * @property {number} key
 * @property {number} seq  the entry that it began with, 0 while that is not known
 * @property {string} at  "" while that is not known
 * @property {number} version
 * @property {number} size  characters that it holds, but for the prose
 *
 * @typedef {Base & {kind: "said", role: "agent" | "thought", messageId?: string, prose: Prose, others: Content[]}} Said
 * @typedef {Base & {kind: "prompt", messageId?: string, content: Content[], author?: string, isTold: boolean}} Prompt
 * @typedef {Base & {kind: "tool", id: string, fields: any, isWhole: boolean, children: Child[]}} Tool
 * @typedef {Base & {kind: "plan", entries: {content: string, status: string, priority?: string}[]}} Plan
 * @typedef {Base & {kind: "end", outcome: string, message?: string}} End
 * @typedef {Base & {kind: "note", severity: string, title: string, description?: string}} Note
 * @typedef {Base & {kind: "question", id: string, method: string, params: any, answer?: any}} Question
 * @typedef {Base & {kind: "compaction", id: string, status: string, prose: Prose, error?: string}} Compaction
 * @typedef {Base & {kind: "child", id: string, title?: string, task?: string, state?: string, caller?: string, timeline: Timeline}} Child
 * @typedef {Said | Prompt | Tool | Plan | End | Note | Question | Compaction | Child} Item
 *
 * @typedef {object} Place
 * @property {number} seq
 * @property {string} at
 */

let keys = 0;

const OUTCOMES = /** @type {Record<string, string>} */ ({
  max_tokens: "limited",
  max_turn_requests: "limited",
  refusal: "refused",
  cancelled: "cancelled",
});

export class Timeline {
  /** @type {Item[]} */
  items = [];
  /** What holds now: modes, options, commands, use of the context. @type {any} */
  state = {};
  /** Who writes the prompt behind it. */
  #author = "";
  /** @type {Map<string, Tool>} */
  #tools = new Map();
  /** @type {Map<string, Question>} */
  #questions = new Map();
  /** @type {Map<string, Child>} */
  #children = new Map();
  /** @type {Map<string, Compaction>} */
  #compactions = new Map();

  /** Take what came: what cannot be read is said in its place. @param {Place} place @param {() => void} what */
  take(place, what) {
    try {
      what();
    } catch (error) {
      console.error(error);
      this.#note("error", "Something came that this page cannot read.", undefined, place);
    }
  }

  /** An entry of the journal. @param {import("../wire/pages.js").Entry} entry */
  addEntry(entry) {
    this.take(entry, () => this.#addEntry(entry));
  }

  /** @param {import("../wire/pages.js").Entry} entry */
  #addEntry({ seq, kind, at, update }) {
    const place = { seq, at };
    if (kind === "update" || kind === "terminal") this.add(update, place);
    else if (kind === "params") this.add(update.update ?? {}, place);
    else if (kind === "author") this.#author = String(update.name ?? "");
    else if (kind === "prompt") {
      this.#put({ kind: "prompt", content: update.prompt ?? [], author: this.#author, isTold: false, ...base(place), size: sizeOf(update.prompt) });
      this.#author = "";
    } else if (kind === "turn_end") this.#end(update, place);
    else if (kind === "settings") this.#settings(update);
    else if (kind === "question") this.asked(update.id, update.method, update.params, place);
    else if (kind === "answer") this.answered(update, place);
    else if (kind === "child") this.#saidInChild(update, place);
  }

  /** @param {any} update @param {Place} place */
  add(update, place) {
    switch (update.sessionUpdate) {
      case "agent_message_chunk":
        if (update._meta?.["acphold/notice"]) this.#note("info", update.content?.text, undefined, place);
        else this.#speak("agent", update, place);
        break;
      case "agent_thought_chunk":
        this.#speak("thought", update, place);
        break;
      case "user_message_chunk":
        this.#userSaid(update, place);
        break;
      case "tool_call":
      case "tool_call_update":
        this.#tool(update, place);
        break;
      case "plan":
        this.#plan(update.entries, place);
        break;
      case "notice":
        this.#note(update.severity, update.title, update.description, place);
        break;
      case "compaction_update":
      case "compaction_summary_chunk":
        this.#compact(update, place);
        break;
      case "subagent_update":
      case "subagent_spawned":
      case "subagent_state_update":
        this.#announce(update, place);
        break;
      case "available_commands_update":
        this.state.commands = (update.availableCommands ?? []).filter(Boolean);
        break;
      case "current_mode_update":
        if (this.state.modes) this.state.modes = { ...this.state.modes, currentModeId: update.currentModeId };
        else this.state.modeId = update.currentModeId;
        break;
      case "config_option_update":
        this.state.options = update.configOptions ?? [];
        break;
      case "usage_update":
        this.state.usage = update;
        break;
      case "session_info_update": {
        if (update.title !== undefined) this.state.title = update.title;
        const turn = update._meta?.["acphold/turn"];
        if (turn) this.endTurn(turn.outcome, turn.message, place);
      }
    }
  }

  /** The notification of opencode, or what is said in another child. @param {any} told @param {Place} place */
  addChild(told, place) {
    this.#saidInChild(told, place);
  }

  /** @param {string} outcome @param {string | undefined} message @param {Place} place */
  endTurn(outcome, message, place) {
    const last = this.items.at(-1);
    if (last?.kind === "end") return;
    this.#put({ kind: "end", outcome, message, ...base(place) });
  }

  /** Drop items at the beginning until `most` are left; what is left begins at the returned entry, 0 for nothing dropped. @param {number} most */
  trim(most) {
    let from = this.items.length - most;
    while (from > 0 && from < this.items.length && !this.items[from].seq) from++;
    if (from <= 0 || from >= this.items.length) return 0;
    for (const item of this.items.splice(0, from)) {
      if (item.kind === "tool") this.#tools.delete(item.id);
      else if (item.kind === "question") this.#questions.delete(item.id);
      else if (item.kind === "child") this.#children.delete(item.id);
    }
    return this.items[0].seq;
  }

  /** Set what was before in front of it. @param {Timeline} older */
  prepend(older) {
    this.state = { ...older.state, ...this.state };
    const last = older.items.at(-1);
    const first = this.items[0];
    if (last?.kind === "said" && first?.kind === "said" && last.role === first.role && last.messageId === first.messageId) {
      last.prose = new Prose(last.prose.text + first.prose.text);
      last.others.push(...first.others);
      last.size += first.size;
      last.version++;
      this.items.shift();
    }
    /** @type {Set<Item>} */
    const merged = new Set();
    for (const [id, tool] of older.#tools) {
      const later = this.#tools.get(id);
      if (later && !later.isWhole) {
        patch(tool, later.fields);
        tool.children.push(...later.children);
        merged.add(later);
      }
      this.#tools.set(id, later && later.isWhole ? later : tool);
    }
    for (const [id, question] of older.#questions) {
      const later = this.#questions.get(id);
      if (later) {
        question.answer ??= later.answer;
        merged.add(later);
      }
      this.#questions.set(id, question);
    }
    for (const [id, child] of older.#children) {
      const later = this.#children.get(id);
      if (later) {
        later.timeline.prepend(child.timeline);
        child.timeline = later.timeline;
        child.state = later.state ?? child.state;
        child.version++;
        merged.add(later);
      }
      this.#children.set(id, child);
    }
    for (const tool of this.#tools.values()) tool.children = tool.children.filter((child) => !merged.has(child));
    this.items = [...older.items, ...this.items.filter((item) => !merged.has(item))];
  }

  /** The tool call that is asked about. @param {string} id */
  tool(id) {
    return this.#tools.get(id);
  }

  // -- messages --------------------------------------------------------------------------------

  /** @param {"agent" | "thought"} role @param {any} update @param {Place} place */
  #speak(role, { content, messageId }, place) {
    let said = this.items.at(-1);
    const isSame = said?.kind === "said" && said.role === role && (said.messageId ?? messageId) === (messageId ?? said.messageId);
    if (!isSame || said?.kind !== "said") {
      said = /** @type {Said} */ ({ kind: "said", role, messageId, prose: new Prose(), others: [], ...base(place) });
      this.#put(said);
    }
    if (content?.type === "text") said.prose.add(String(content.text ?? ""));
    else if (content) {
      said.others.push(content);
      said.size += sizeOf(content);
    }
    touch(said, place);
  }

  /** @param {any} update @param {Place} place */
  #userSaid({ content, messageId, _meta }, place) {
    const last = this.items.at(-1);
    if (last?.kind === "prompt" && messageId !== undefined && last.messageId === messageId) {
      last.content.push(content);
      last.size += sizeOf(content);
      touch(last, place);
      return;
    }
    const author = _meta?.["acphold/client"]?.name ?? "";
    // Without that mark there is only the agent's word for it that the user said it.
    const isTold = !String(messageId ?? "").startsWith("acphold-");
    // Of a turn that was completed nobody else is told its end.
    if (!isTold && last) this.endTurn("completed", undefined, place);
    this.#put({ kind: "prompt", messageId, content: [content], author, isTold, ...base(place), size: sizeOf(content) });
  }

  // -- what it does ----------------------------------------------------------------------------

  /** @param {any} update @param {Place} place */
  #tool(update, place) {
    const { sessionUpdate, toolCallId, ...fields } = update;
    const id = String(toolCallId);
    let tool = this.#tools.get(id);
    if (!tool) {
      tool = { kind: "tool", id, fields: {}, isWhole: sessionUpdate === "tool_call", children: [], ...base(place) };
      this.#tools.set(id, tool);
      this.#put(tool);
    }
    patch(tool, fields);
  }

  /** One for each turn, which is changed. @param {any[]} entries @param {Place} place */
  #plan(entries, place) {
    for (let at = this.items.length - 1; at >= 0; at--) {
      const item = this.items[at];
      if (item.kind === "prompt" || item.kind === "end") break;
      if (item.kind === "plan") {
        item.entries = entries ?? [];
        item.version++;
        return;
      }
    }
    this.#put({ kind: "plan", entries: entries ?? [], ...base(place) });
  }

  /** @param {any} update @param {Place} place */
  #compact(update, place) {
    const id = String(update.compactionId);
    let found = this.#compactions.get(id);
    if (!found) {
      found = { kind: "compaction", id, status: "in_progress", prose: new Prose(), ...base(place) };
      this.#compactions.set(id, found);
      this.#put(found);
    }
    if (update.status) found.status = update.status;
    if (update.error !== undefined) found.error = update.error ?? undefined;
    const text = [update.content, ...(update.summary ?? [])].map((each) => each?.text ?? "").join("");
    if (update.summary) found.prose = new Prose();
    if (text) found.prose.add(text);
    found.version++;
  }

  // -- turns and questions ---------------------------------------------------------------------

  /** @param {any} end @param {Place} place */
  #end(end, place) {
    if (end.interrupted) this.endTurn("interrupted", undefined, place);
    else if (end.error) this.endTurn("failed", end.error.message, place);
    else this.endTurn(OUTCOMES[end.stopReason] ?? "completed", undefined, place);
  }

  /** @param {any} settings */
  #settings({ modes, configOptions, anew }) {
    if (anew) {
      this.state.modes = this.state.options = undefined;
      this.state.commands = [];
    }
    if (modes) this.state.modes = modes;
    if (configOptions) this.state.options = configOptions;
  }

  /** A person is asked. @param {string} id @param {string} method @param {any} params @param {Place} place */
  asked(id, method, params, place) {
    if (this.#questions.has(id)) return;
    /** @type {Question} */
    const question = { kind: "question", id, method, params: params ?? {}, ...base(place) };
    this.#questions.set(id, question);
    this.#put(question);
  }

  /** What came of it. @param {any} answer @param {Place} place */
  answered(answer, place) {
    this.asked(String(answer.question), "", {}, place);
    const question = this.#questions.get(String(answer.question));
    if (!question) return;
    question.answer = answer;
    question.version++;
  }

  /** @param {string} severity @param {string} title @param {string | undefined} description @param {Place} place */
  #note(severity, title, description, place) {
    this.#put({ kind: "note", severity: severity ?? "info", title: title ?? "", description, ...base(place) });
  }

  // -- sub-agents ------------------------------------------------------------------------------

  /** @param {any} update @param {Place} place */
  #announce(update, place) {
    const child = this.#child(String(update.sessionId ?? update.subagentSessionId), place, callerOf(update));
    child.title = update.title ?? update.name ?? child.title;
    child.task = update.description ?? update.task ?? child.task;
    const state = typeof update.state === "object" ? update.state?.state : update.state;
    child.state = state ?? (update.sessionUpdate === "subagent_spawned" ? "running" : child.state);
    child.version++;
  }

  /** @param {any} told @param {Place} place */
  #saidInChild(told, place) {
    if (told.method) {
      const params = told.params ?? {};
      const id = String(params.childSessionId);
      if (params.type === "update") {
        const child = this.#child(id, place);
        child.timeline.add(params.update ?? {}, place);
        child.size += sizeOf(params.update);
      }
      else {
        const child = this.#child(id, place);
        child.title = params.title ?? child.title;
        child.state = params.status ?? child.state;
      }
      this.#children.get(id)?.version !== undefined && this.#touchChild(id);
      return;
    }
    const child = this.#child(String(told.sessionId), place);
    child.timeline.add(told.update ?? {}, place);
    child.size += sizeOf(told.update);
    this.#touchChild(child.id);
  }

  /** @param {string} id */
  #touchChild(id) {
    const child = this.#children.get(id);
    if (!child) return;
    child.version++;
    const caller = child.caller === undefined ? undefined : this.#tools.get(child.caller);
    if (caller) caller.version++;
  }

  /** @param {string} id @param {Place} place @param {string} [caller] */
  #child(id, place, caller) {
    let child = this.#children.get(id);
    if (!child) {
      child = { kind: "child", id, caller, timeline: new Timeline(), ...base(place) };
      this.#children.set(id, child);
      const tool = caller === undefined ? undefined : this.#tools.get(caller);
      if (tool) {
        tool.children.push(child);
        tool.version++;
      } else this.#put(child);
    }
    return child;
  }

  /** @param {Item} item */
  #put(item) {
    this.items.push(item);
  }
}

/** Characters that an item holds, but for its prose; with those of its sub-agents. @param {Item} item */
export const held = (item) => item.size + (item.kind === "tool" ? item.children.reduce((sum, child) => sum + child.size, 0) : 0);

/** @param {Place} place @returns {Base} */
const base = ({ seq, at }) => ({ key: ++keys, seq, at, version: 0, size: 0 });

/** Characters in a value, as deep as anybody would say something. @param {any} value @param {number} [depth] @returns {number} */
const sizeOf = (value, depth = 0) =>
  typeof value === "string" ? value.length : value && typeof value === "object" && depth < 50 ? Object.values(value).reduce((sum, each) => sum + sizeOf(each, depth + 1), 0) : 0;

/** An update without a place belongs to the next one that has one. @param {Item} item @param {Place} place */
function touch(item, place) {
  item.version++;
  item.seq ||= place.seq;
  item.at ||= place.at;
}

/** What an update says of a tool call, over what was said before: null clears. @param {Tool} tool @param {any} fields */
function patch(tool, fields) {
  for (const [name, value] of Object.entries(fields)) {
    if (value === null) delete tool.fields[name];
    else tool.fields[name] = value;
  }
  tool.size = sizeOf(tool.fields);
  tool.version++;
}

/** The call that made a child; agents put it into their own part of `_meta`. @param {any} update @returns {string | undefined} */
function callerOf(update) {
  for (const own of Object.values(update._meta ?? {})) {
    for (const name of ["parentToolCallId", "parentToolUseId", "toolCallId", "toolUseId"]) {
      const caller = /** @type {any} */ (own)?.[name];
      if (typeof caller === "string") return caller;
    }
  }
  return undefined;
}
