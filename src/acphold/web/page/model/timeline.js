// What was said and done in a session, folded from entries of the journal and from updates as they
// come. An item is changed in its place; its `version` tells a view that it was.
//
// The rules are those of `history/fold.py`: one corpus of sequences is folded by both
// (tests/history/fold_corpus.py). Beside what the core has on its timeline there are plans, notes
// and questions here, which part no message.
//
// A timeline begins anywhere: a page of the journal may begin in the middle of a message or of a
// tool call. When the page before it comes, the two halves are put together (`prepend`).
import { ENDED, LASTING, OUTCOMES, ROLES, SPEAKS_OF_CHILDREN } from "./tables.js";
import { joinTerminals, takeTerminals } from "./display_terminals.js";
import { Prose } from "./prose.js";
import { asText } from "./text.js";

/**
 * @typedef {{type: string, text?: string, data?: string, mimeType?: string, uri?: string, name?: string, resource?: {uri: string, text?: string}}} Content
 *
 * @typedef {object} Base
 * @property {number} key
 * @property {number} seq  the entry that it began with, 0 while that is not known
 * @property {string} at  "" while that is not known
 * @property {number} version
 * @property {number} size  characters that it holds, but for the prose
 *
 * @typedef {object} Message
 * @property {string} [messageId]
 * @property {boolean} isWhole  false if an earlier page may have its beginning
 *
 * @typedef {Base & Message & {kind: "said", role: "agent" | "thought", prose: Prose, others: Content[], isPart: boolean}} Said  `isPart`: it goes on with the one before it, and something of ours stands between
 * @typedef {{name?: unknown, user?: unknown}} Author  the program that a prompt was written in, and its named user
 * @typedef {Base & Message & {kind: "prompt", role: "user", content: Content[], author?: string, user?: string, isReported: boolean}} Prompt
 * @typedef {Base & {kind: "tool", id: string, fields: ToolFields, saysAll: boolean, saysMeta: boolean, terminals: import("./display_terminals.js").Terminals, children: Child[], cut?: Cut}} Tool  `saysAll`, `saysMeta`: an earlier page has nothing to say of its status, of its `_meta`
 * @typedef {{seq: number, bytes: number}} Cut  the entry of whose content only the beginning was read, and its whole size
 * @typedef {Base & {kind: "plan", entries: {content: string, status: string, priority?: string}[]}} Plan
 * @typedef {Base & {kind: "end", outcome: string, message?: string, resetsAt?: number}} End
 * @typedef {Base & {kind: "note", severity: string, title: string, description?: string}} Note
 * @typedef {Base & {kind: "question", id: string, method: string, params: Received, answer?: Answer}} Question
 * @typedef {Base & {kind: "compaction", id: string, status?: string, prose: Prose, error?: string | null, saysAll: boolean}} Compaction
 * @typedef {Base & {kind: "child", id: string, depth: number, lane: Timeline, caller?: string, told: ChildState, timeline: Timeline}} Child
 * @typedef {Said | Prompt | Tool | Plan | End | Note | Question | Compaction | Child} Item
 *
 * @typedef {{title?: string | null, description?: string | null, state?: string | null, stopReason?: string | null}} ChildState
 * @typedef {{question: string, outcome?: string, result?: Received, client?: {name?: string}, rule?: {numbers: number[], user: string}}} Answer
 *
 * @typedef {object} ToolFields  what an agent may say of a tool call; `content` and the inputs are as it sent them
 * @property {string} [title]
 * @property {string} [name]
 * @property {string} [kind]
 * @property {string} [status]
 * @property {Received[]} [content]
 * @property {Received[]} [locations]
 * @property {Received} [rawInput]
 * @property {Received} [rawOutput]
 * @property {Received} [_meta]
 *
 * @typedef {object} State  what holds now
 * @property {string | null} [title]
 * @property {Received[]} [availableModes]
 * @property {string} [modeId]
 * @property {Received[]} [options]
 * @property {Received[]} [commands]
 * @property {Received} [usage]
 *
 * @typedef {object} Place
 * @property {number} seq
 * @property {string} at
 *
 * @typedef {<T extends Item>(before: Map<string, T>, now: Map<string, T>, join: (older: T, later: T) => void) => void} Meet
 *
 * @typedef {Record<string, Received>} Update  as the agent sent it: nothing in it is sure
 */

let keys = 0;

/** How the id of a message begins that a person sent through us. */
const OURS = "acphold-";

/** How many children may lie in one another. */
const DEEPEST = 8;

const MOST_UNPLACED = 100;

/** Fewest characters of a content that was cut, as JSON. */
const LEAST_CUT = 10_000;

const STRINGS = new Set(["title", "name", "kind", "status"]);
const ARRAYS = new Set(["content", "locations"]);
const NULLABLE = new Set([...STRINGS, ...ARRAYS, "rawInput", "rawOutput", "_meta"]);

export class Timeline {
  /** @type {Item[]} */
  items = [];
  /** @type {State} */
  state = {};
  /** The items that the core has on its timeline, but for ends of turns, in the order in which they came. @type {(Said | Prompt | Tool | Compaction | Child)[]} */
  #order = [];
  /** Whether something of ours stands behind the last of them. */
  #isParted = false;
  /** Who writes the prompt behind it. @type {Author | undefined} */
  #author = undefined;
  /** By role and id. @type {Map<string, Said | Prompt>} */
  #messages = new Map();
  /** @type {Map<string, Tool>} */
  #tools = new Map();
  /** @type {Map<string, Question>} */
  #questions = new Map();
  /** @type {Map<string, Compaction>} */
  #compactions = new Map();
  /** One for the whole tree: an update of a child names it, wherever it lies. @type {Map<string, Child>} */
  #children;
  /** The child that this is said in. @type {Child | null} */
  #within;
  /** What was said in children that nobody has announced, unless a page before this one has. @type {{id: string, update: Update, place: Place}[]} */
  #unplaced = [];
  /** The numbers of entries that were left, each from a first to a last one. @type {number[][]} */
  #left = [];
  /** Messages between sessions, by their ids. @type {Map<string, {lane: Timeline, role: "user" | "agent", id: string}>} */
  #between = new Map();

  /** @param {Child | null} [within] @param {Map<string, Child>} [children] */
  constructor(within = null, children = new Map()) {
    this.#within = within;
    this.#children = children;
  }

  /** Add what arrived; if it cannot be read, a note takes its place. @param {Place} place @param {() => void} what */
  guarded(place, what) {
    try {
      what();
    } catch (error) {
      console.error(error);
      this.#note("error", "The page could not read a message from the server.", undefined, place);
    }
  }

  /** An entry of the journal. @param {import("../wire/pages.js").Entry} entry */
  addEntry(entry) {
    this.guarded(entry, () => this.#addEntry(entry));
  }

  /** @param {import("../wire/pages.js").Entry} entry */
  #addEntry({ seq, kind, at, update }) {
    const place = { seq, at };
    if (kind === "update" || kind === "terminal") this.add(update, place);
    else if (kind === "params") this.add(update?.update, place);
    else if (kind === "author") this.#author = update;
    else if (kind === "prompt") {
      for (const content of update.prompt ?? []) this.#said("user", `${OURS}${seq}`, content, place, this.#author);
      this.#author = undefined;
    } else if (kind === "turn_end") this.#put({ kind: "end", ...ended(update), ...base(place) });
    else if (kind === "settings") this.#settings(update);
    else if (kind === "question") this.addQuestion(update.id, update.method, update.params, place);
    else if (kind === "answer") this.addAnswer(update, place);
    else if (kind === "child") this.addChild(update, place);
    else if (kind === "cleared" && update?.shown) this.#note("info", `${update.agent || "The agent"} has forgotten everything above`, undefined, place);
    else if (kind === "back" && Array.isArray(update?.left)) {
      this.#left.push(...update.left);
      this.#goBack();
    }
  }

  /** The person went back in the agent's own program: turns whose prompts were left stand here no longer, each up to the next prompt. */
  #goBack() {
    if (this.#left.length === 0) return;
    /** @type {Set<Item>} */
    const gone = new Set();
    /** @param {number} seq */
    const wasLeft = (seq) => this.#left.some(([first, last]) => first <= seq && seq <= last);
    let isLeft = wasLeft(this.items[0]?.seq);  // the page before this one has its prompt
    for (const item of this.items) {
      const seq = item.kind === "prompt" && isOurs(item.messageId) ? Number(item.messageId?.slice(OURS.length) || NaN) : NaN;
      if (Number.isInteger(seq)) isLeft = wasLeft(seq);
      if (isLeft) gone.add(item);
    }
    this.#forget(gone);
  }

  /** @param {Set<Item>} gone */
  #forget(gone) {
    this.items = this.items.filter((item) => !gone.has(item));
    this.#order = this.#order.filter((item) => !gone.has(item));
    for (const known of [this.#messages, this.#tools, this.#questions, this.#compactions, this.#children]) {
      for (const [id, item] of known) if (gone.has(item)) known.delete(id);
    }
  }

  /** A live update; its `_meta` marks what the journal has entries for. @param {Update} update @param {Place} place */
  addLive(update, place) {
    const turn = update?.sessionUpdate === "session_info_update" && update._meta?.["acphold/turn"];
    if (turn) this.endTurn({ outcome: turn.outcome, message: string(turn.message) ?? undefined, resetsAt: time(turn.resetsAt) }, place);
    // Of a turn that was completed nobody else is told its end.
    const isPrompt = update?.sessionUpdate === "user_message_chunk" && isOurs(update.messageId);
    if (isPrompt && this.items.length > 0 && !this.#messages.has(`user ${update.messageId}`)) this.endTurn({ outcome: "completed" }, place);
    this.add(update, place);
    // A question that rules have answered was put to nobody: this says so, until the journal is read.
    const rule = update?.sessionUpdate === "tool_call_update" && update._meta?.["acphold/rule"];
    if (!rule) return;
    const question = `rule ${update.toolCallId}`;
    this.addQuestion(question, "", { toolCall: { toolCallId: update.toolCallId, title: this.tool(update.toolCallId)?.fields.title } }, place);
    this.addAnswer({ question, outcome: "allow_once", rule }, place);
  }

  /** @param {Update} update @param {Place} place */
  add(update, place) {
    const kind = string(update?.sessionUpdate) ?? "";
    const role = /** @type {"user" | "agent" | "thought" | undefined} */ (ROLES[kind]);
    if (role) {
      if (update.content !== undefined) this.#said(role, update.messageId, update.content, place, update._meta?.["acphold/client"]);
      return;
    }
    if (SPEAKS_OF_CHILDREN.includes(kind)) {
      this.#aboutChild(update, place);
      return;
    }
    switch (kind) {
      case "tool_call":
      case "tool_call_update":
        this.#tool(update, place);
        break;
      case "plan":
        if (Array.isArray(update.entries)) this.#plan(update.entries, place);
        break;
      case "notice":
        this.#note(update.severity, update.title, update.description, place);
        break;
      case "compaction_update":
      case "compaction_summary_chunk":
        this.#compact(update, place);
        break;
      case "available_commands_update":
        if (Array.isArray(update.availableCommands)) this.state.commands = update.availableCommands;
        break;
      case "current_mode_update":
        if (typeof update.currentModeId === "string") this.state.modeId = update.currentModeId;
        break;
      case "config_option_update":
        if (Array.isArray(update.configOptions)) this.state.options = update.configOptions;
        break;
      case "usage_update":
        this.state.usage = update;
        break;
      case "session_info_update":
        if (update.title === null || typeof update.title === "string") this.state.title = update.title;
    }
  }

  /** A turn is over of which no entry was read. @param {Pick<End, "outcome" | "message" | "resetsAt">} end @param {Place} place */
  endTurn(end, place) {
    if (this.items.at(-1)?.kind !== "end") this.#put({ ...end, kind: "end", ...base(place) });
  }

  /** Drop items at the beginning until `most` are left; what is left begins at the returned entry, 0 for nothing dropped. @param {number} most */
  trim(most) {
    let from = this.items.length - most;
    while (from > 0 && from < this.items.length && !this.items[from].seq) from++;
    if (from <= 0 || from >= this.items.length) return 0;
    this.#forget(new Set(this.items.slice(0, from)));
    return this.items[0].seq;
  }

  /** Set what was before in front of it. @param {Timeline} older */
  prepend(older) {
    older.#left.push(...this.#left);
    older.#goBack();
    this.#left = older.#left;
    this.state = { ...older.state, ...this.state };
    /** Those that go on with one of the older items. @type {Set<Item>} */
    const merged = new Set();
    /** @type {Meet} */
    const meet = (before, now, join) => {
      for (const [id, item] of before) {
        const later = now.get(id);
        if (later) {
          join(item, later);
          item.version++;
          merged.add(later);
        }
        now.set(id, item);
      }
    };
    meet(older.#messages, this.#messages, joinMessages);
    meet(older.#tools, this.#tools, joinTools);
    meet(older.#compactions, this.#compactions, joinCompactions);
    meet(older.#questions, this.#questions, (question, later) => void (question.answer ??= later.answer));
    if (!this.#within) this.#meetChildren(older, meet);
    if (this.items.some((item) => item.kind === "plan")) older.#takePlan();
    this.items.unshift(...older.items);
    this.#isParted = this.#isParted || (this.#order.length === 0 && older.#isParted);
    this.#order.unshift(...older.#order);
    this.#drop(merged);
    if (!this.#within) for (const child of this.#children.values()) child.timeline.#drop(merged);
  }

  /** @param {Set<Item>} merged */
  #drop(merged) {
    this.items = this.items.filter((item) => !merged.has(item));
    this.#order = this.#order.filter((item) => !merged.has(item));
    for (const tool of this.#tools.values()) tool.children = tool.children.filter((child) => !merged.has(child));
    this.#joinNeighbours();
  }

  /** Those of the whole tree, each of which may lie anywhere in it. @param {Timeline} older @param {Meet} meet */
  #meetChildren(older, meet) {
    const left = this.#unplaced.filter(({ id, update, place }) => {
      const child = older.#children.get(id);
      child?.timeline.add(update, place);
      return !child;
    });
    this.#unplaced = [...older.#unplaced, ...left];
    /** Beside each that was put in front of another one the other one. @type {Map<Timeline, Timeline>} */
    const stays = new Map().set(older, this);
    meet(older.#children, this.#children, (child, later) => {
      stays.set(child.timeline, later.timeline);
      later.timeline.prepend(child.timeline);
      child.timeline = later.timeline;
      child.timeline.#within = child;
      child.told = { ...child.told, ...later.told };
      child.caller = later.caller ?? child.caller;
      child.size += later.size;
    });
    for (const child of this.#children.values()) {
      child.lane = stays.get(child.lane) ?? child.lane;
      child.timeline.#children = this.#children;
    }
  }

  /** Messages without ids that stand behind each other, now that both halves are there, are one. */
  #joinNeighbours() {
    /** @type {Set<Item>} */
    const joined = new Set();
    /** @type {Item | undefined} */
    let before;
    for (const item of this.#order) {
      if (before && isMessage(item) && goesOnWith(before, item.role, item.messageId)) {
        if (item.kind === "said" && (item.isPart || this.#isOursBetween(before, item))) item.isPart = true;
        else {
          joinMessages(/** @type {Said} */ (before), /** @type {Said} */ (item));
          before.version++;
          joined.add(item);
          continue;
        }
      }
      before = item;
    }
    this.#order = this.#order.filter((item) => !joined.has(item));
    this.items = this.items.filter((item) => !joined.has(item));
  }

  /** @param {Item} one @param {Item} other */
  #isOursBetween(one, other) {
    return this.items.slice(this.items.indexOf(one) + 1, this.items.indexOf(other)).some(isOursAlone);
  }

  /** The tool call that is asked about. @param {string} id */
  tool(id) {
    return this.#tools.get(id);
  }

  // -- messages --------------------------------------------------------------------------------

  /** Chunks with one id are one message; without ids, those of one role are, as long as nothing else comes up. @param {"user" | "agent" | "thought"} role @param {unknown} id @param {Content} content @param {Place} place @param {Author} [author] */
  #said(role, id, content, place, author) {
    const messageId = typeof id === "string" ? id : undefined;
    grow(this.#message(role, messageId, place, author), content, place);
  }

  /** The message that a chunk belongs to. @param {"user" | "agent" | "thought"} role @param {string | undefined} messageId @param {Place} place @param {Author} [author] @returns {Said | Prompt} */
  #message(role, messageId, place, author) {
    const last = this.#order.at(-1);
    const goesOn = messageId === undefined && last !== undefined && goesOnWith(last, role, undefined);
    const found = messageId === undefined ? goesOn && last : this.#messages.get(`${role} ${messageId}`);
    const isPart = goesOn && this.#isParted && role !== "user";
    if (found && isMessage(found) && !isPart) return found;
    const message = /** @type {const} */ ({ messageId, isWhole: false, ...base(place) });
    /** @type {Said | Prompt} */
    const made = role === "user"
      // Without that mark there is only the agent's word for it that the user said it.
      ? { kind: "prompt", role, content: [], author: asText(author?.name), user: asText(author?.user), isReported: !isOurs(messageId), ...message }
      : { kind: "said", role, prose: new Prose(), others: [], isPart, ...message };
    if (messageId !== undefined) this.#messages.set(`${role} ${messageId}`, made);
    this.#put(made);
    return made;
  }

  // -- what it does ----------------------------------------------------------------------------

  /** @param {Update} update @param {Place} place */
  #tool({ sessionUpdate, toolCallId, ...fields }, place) {
    if (typeof toolCallId !== "string" || !toolCallId) return;
    let tool = this.#tools.get(toolCallId);
    if (!tool) {
      tool = { kind: "tool", id: toolCallId, fields: {}, saysAll: false, saysMeta: false, terminals: new Map(), children: [], ...base(place) };
      this.#tools.set(toolCallId, tool);
      this.#put(tool);
    }
    if (sessionUpdate === "tool_call") {
      tool.saysAll = true;
      delete tool.fields.status;
    }
    patch(tool, fields);
    const [bytes] = Array.isArray(fields._meta?.["acphold/whole"]) ? fields._meta["acphold/whole"] : [];
    if (Array.isArray(fields.content)) {
      // An agent may say so itself, of what is short.
      const isCut = Number.isInteger(bytes) && place.seq && JSON.stringify(fields.content).length >= LEAST_CUT;
      tool.cut = isCut ? { seq: place.seq, bytes } : undefined;
    }
  }

  /** It stands where it was told last, as it does in the journal, which keeps no earlier one. @param {Received[]} entries @param {Place} place */
  #plan(entries, place) {
    const plan = this.#takePlan();
    if (plan) Object.assign(plan, { entries, ...place, version: plan.version + 1 });
    this.#put(plan ?? { kind: "plan", entries, ...base(place) });
  }

  /** Take the plan away, if there is one; what it parted is one again. */
  #takePlan() {
    const at = this.items.findIndex((item) => item.kind === "plan");
    if (at < 0) return undefined;
    const [plan] = this.items.splice(at, 1);
    const [before, after] = [this.items[at - 1], this.items[at]];
    if (before?.kind === "said" && after?.kind === "said" && after.isPart && goesOnWith(before, after.role, after.messageId)) {
      joinMessages(before, after);
      before.version++;
      this.#forget(new Set([after]));
    } else if (!after) this.#isParted = before !== undefined && isOursAlone(before);
    return plan.kind === "plan" ? plan : undefined;
  }

  /** @param {Update} update @param {Place} place */
  #compact({ sessionUpdate, compactionId, status, error, summary, content }, place) {
    if (typeof compactionId !== "string" || !compactionId) return;
    let found = this.#compactions.get(compactionId);
    if (!found) {
      found = { kind: "compaction", id: compactionId, prose: new Prose(), saysAll: false, ...base(place) };
      this.#compactions.set(compactionId, found);
      this.#put(found);
    }
    if (sessionUpdate === "compaction_summary_chunk") found.prose.add(textOf(content));
    else {
      if (typeof status === "string" && status) found.status = status;
      if (error === null || typeof error === "string") found.error = error;
      if (summary === null || Array.isArray(summary)) {
        found.prose = new Prose((summary ?? []).map(textOf).join(""));
        found.saysAll = true;
      }
    }
    found.version++;
  }

  // -- turns and questions ---------------------------------------------------------------------

  /** @param {Update} settings */
  #settings({ modes, configOptions, anew }) {
    if (anew === true) this.state.availableModes = this.state.modeId = this.state.options = undefined;
    this.hasModes(modes);
    if (Array.isArray(configOptions)) this.state.options = configOptions;
  }

  /** The modes as an agent tells them of a session that it opens. @param {Received} modes */
  hasModes(modes) {
    if (!Array.isArray(modes?.availableModes)) return;
    this.state.availableModes = modes.availableModes;
    if (typeof modes.currentModeId === "string") this.state.modeId = modes.currentModeId;
  }

  /** A person is asked. @param {string} id @param {string} method @param {Received} params @param {Place} place */
  addQuestion(id, method, params, place) {
    if (this.#questions.has(id)) return;
    /** @type {Question} */
    const question = { kind: "question", id, method, params: params ?? {}, ...base(place) };
    this.#questions.set(id, question);
    this.#put(question);
  }

  /** What came of it. @param {Answer} answer @param {Place} place */
  addAnswer(answer, place) {
    this.addQuestion(asText(answer.question), "", {}, place);
    const question = this.#questions.get(asText(answer.question));
    if (!question) return;
    question.answer = answer;
    question.version++;
  }

  /** @param {string} severity @param {string} title @param {string | undefined} description @param {Place} place */
  #note(severity, title, description, place) {
    this.#put({ kind: "note", severity: severity ?? "info", title: title ?? "", description, ...base(place) });
  }

  // -- sub-agents ------------------------------------------------------------------------------

  /** What was said in a child, or opencode's notification of one. @param {Update} told @param {Place} place */
  addChild(told, place) {
    const { id, update } = told.method === undefined ? { id: told.sessionId, update: told.update } : opencodes(told.params ?? {});
    if (typeof id !== "string" || !id) {
      this.add(update, place);
      return;
    }
    if (!this.#children.has(id) && !LASTING.includes(update?.sessionUpdate)) {
      if (this.#unplaced.length < MOST_UNPLACED) this.#unplaced.push({ id, update, place });
      return;
    }
    const child = this.#child(id, place);
    child.timeline.add(update, place);
    this.#grown(child, sizeOf(update));
  }

  /** @param {Update} update @param {Place} place */
  #aboutChild(update, place) {
    if (update.sessionUpdate === "session_message") this.#messageBetween(update, place);
    else if (update.sessionUpdate === "session_message_chunk") {
      const message = this.#between.get(update.messageId);
      if (message && update.content !== undefined) message.lane.#said(message.role, message.id, update.content, place);
    } else this.#announced(update, place);
  }

  /** @param {Update} update @param {Place} place */
  #announced(update, place) {
    const isDraft = update.sessionUpdate === "subagent_update";
    const id = isDraft ? update.sessionId : update.subagentSessionId;
    if (typeof id !== "string" || !id) return;
    const caller = callerOf(update);
    const child = this.#child(id, place, caller);
    child.caller = caller || child.caller;
    Object.assign(child.told, isDraft ? { ...named(update, "title", "title"), ...named(update, "description", "description") } : { ...named(update, "title", "name"), ...named(update, "description", "task") });
    const word = update.sessionUpdate === "subagent_spawned" ? "running" : string(update.state);
    if (!isDraft) Object.assign(child.told, word && ENDED[word] ? { state: "idle", stopReason: ENDED[word] } : { state: word, stopReason: null });
    else if (update.state !== undefined) Object.assign(child.told, { state: string(update.state?.state), stopReason: string(update.state?.stopReason) });
    this.#grown(child, 0);
  }

  /** A message between sessions stands in the child that it goes to, as from its user. @param {Update} update @param {Place} place */
  #messageBetween(update, place) {
    if (typeof update.messageId !== "string" || !update.messageId) return;
    /** @type {"user" | "agent"} */
    let role = "user";
    let id = update.messageId;
    let child = this.#children.get(update.recipientSessionId) ?? null;
    if (child && child !== this.#within) id = string(update.recipientMessageId) || id;
    else if (!(child = this.#within)) return;
    else if (update.senderSessionId === child.id) role = "agent";
    this.#between.set(update.messageId, { lane: child.timeline, role, id });
    if (Array.isArray(update.content)) {
      const message = child.timeline.#message(role, id, place);
      empty(message);
      for (const content of update.content) grow(message, content, place);
    }
    this.#grown(child, sizeOf(update.content));
  }

  /** It has changed, and so has all that it lies in. @param {Child} changed @param {number} size */
  #grown(changed, size) {
    for (let child = /** @type {Child | null} */ (changed); child; child = child.lane.#within) {
      child.version++;
      child.size += size;
      const caller = child.caller === undefined ? undefined : child.lane.#tools.get(child.caller);
      if (caller) caller.version++;
    }
  }

  /** The child with this id; a new one stands here, unless that lies too deep. @param {string} id @param {Place} place @param {string} [caller] */
  #child(id, place, caller) {
    const known = this.#children.get(id);
    if (known) return known;
    /** @type {Timeline} */
    let lane = this;
    while (lane.#within && lane.#within.depth >= DEEPEST) lane = lane.#within.lane;
    const depth = (lane.#within?.depth ?? 0) + 1;
    const child = /** @type {Child} */ ({ kind: "child", id, depth, lane, caller, told: {}, ...base(place) });
    child.timeline = new Timeline(child, this.#children);
    this.#children.set(id, child);
    const tool = caller === undefined ? undefined : lane.#tools.get(caller);
    if (!tool) lane.#put(child);
    else {
      tool.children.push(child);
      lane.#append(child);
    }
    return child;
  }

  /** @param {Item} item */
  #put(item) {
    this.items.push(item);
    if (isOursAlone(item)) this.#isParted = true;
    else if (item.kind !== "end") this.#append(/** @type {Tool} */ (item));
  }

  /** @param {Said | Prompt | Tool | Compaction | Child} item */
  #append(item) {
    this.#order.push(item);
    this.#isParted = false;
  }
}

/** Characters that an item holds, but for its prose; with those of its sub-agents. @param {Item} item */
export const held = (item) => item.size + (item.kind === "tool" ? item.children.reduce((sum, child) => sum + child.size, 0) : 0);

/** @param {Place} place @returns {Base} */
const base = ({ seq, at }) => ({ key: ++keys, seq, at, version: 0, size: 0 });

/** Characters in a value, as deep as anybody would say something. @param {unknown} value @param {number} [depth] @returns {number} */
const sizeOf = (value, depth = 0) =>
  typeof value === "string" ? value.length : value && typeof value === "object" && depth < 50 ? Object.values(value).reduce((sum, each) => sum + sizeOf(each, depth + 1), 0) : 0;

/** @param {unknown} value */
const string = (value) => (typeof value === "string" ? value : null);

/** @param {unknown} value */
const members = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});

/** @param {unknown} id */
const isOurs = (id) => typeof id === "string" && id.startsWith(OURS);

/** What the core has not on its timeline. @param {Item} item */
const isOursAlone = (item) => item.kind === "plan" || item.kind === "note" || item.kind === "question";

/** @param {Item} item @returns {item is Said | Prompt} */
const isMessage = (item) => item.kind === "said" || item.kind === "prompt";

/** Whether a chunk without an id belongs to what stands last. @param {Item} last @param {string} role @param {string | undefined} messageId */
const goesOnWith = (last, role, messageId) => isMessage(last) && last.role === role && last.messageId === undefined && messageId === undefined;

/** @param {Received} content */
const textOf = (content) => (content?.type === "text" && typeof content.text === "string" ? content.text : "");

/** @param {Said | Prompt} message @param {Content} content @param {Place} place */
function grow(message, content, place) {
  message.version++;
  // An update without a place belongs to the next one that has one.
  message.seq ||= place.seq;
  message.at ||= place.at;
  if (message.kind === "said" && content?.type === "text" && typeof content.text === "string") {
    message.prose.add(content.text);
    return;
  }
  (message.kind === "said" ? message.others : message.content).push(content);
  message.size += sizeOf(content);
}

/** All of it is said anew. @param {Said | Prompt} message */
function empty(message) {
  message.isWhole = true;
  message.size = 0;
  if (message.kind === "said") [message.prose, message.others] = [new Prose(), []];
  else message.content = [];
}

/** @param {Said | Prompt} older @param {Said | Prompt} later */
function joinMessages(older, later) {
  if (later.isWhole) empty(older);
  if (older.kind === "said" && later.kind === "said") {
    older.prose = new Prose(older.prose.text + later.prose.text);
    older.others.push(...later.others);
  } else if (older.kind === "prompt" && later.kind === "prompt") older.content.push(...later.content);
  older.size += later.size;
}

/** What an update says of a tool call: each field that it names replaces the old value; null, or a value of the wrong type, changes nothing. @param {Tool} tool @param {Record<string, Received>} fields */
function patch(tool, fields) {
  const known = /** @type {Record<string, Received>} */ (tool.fields);
  for (const [name, value] of Object.entries(fields)) {
    if (value === null && NULLABLE.has(name)) continue;
    if (STRINGS.has(name) && typeof value !== "string") continue;
    if (ARRAYS.has(name) && !Array.isArray(value)) continue;
    if (name === "_meta") takeMeta(tool, value);
    else known[name] = value;
  }
  tool.size = sizeOfTool(tool);
  tool.version++;
}

/** @param {Tool} tool @param {Received} told */
function takeMeta(tool, told) {
  const meta = JSON.stringify(told).includes('"terminal_') ? takeTerminals(tool.terminals, members(told)) : told;
  if (meta === undefined || (typeof meta === "object" && !Array.isArray(meta) && Object.keys(meta).length === 0)) return;
  // What the server adds stands beside what the agent has put there.
  const isAdded = JSON.stringify(meta).includes('"acphold/');
  if (!isAdded) tool.saysMeta = true;
  tool.fields._meta = isAdded ? { ...members(tool.fields._meta), ...members(meta) } : meta;
}

/** @param {Tool} tool */
const sizeOfTool = ({ fields, terminals }) => [...terminals.values()].reduce((sum, each) => sum + each.kept.length, sizeOf(fields));

/** @param {Tool} older @param {Tool} later */
function joinTools(older, later) {
  const { _meta, ...fields } = later.fields;
  if (later.saysAll) delete older.fields.status;
  if (_meta !== undefined) older.fields._meta = later.saysMeta ? _meta : { ...members(older.fields._meta), ...members(_meta) };
  Object.assign(older.fields, fields);
  if (fields.content) older.cut = later.cut;
  older.saysAll ||= later.saysAll;
  older.saysMeta ||= later.saysMeta;
  joinTerminals(older.terminals, later.terminals);
  older.children.push(...later.children);
  older.size = sizeOfTool(older);
}

/** @param {Compaction} older @param {Compaction} later */
function joinCompactions(older, later) {
  older.status = later.status ?? older.status;
  if (later.error !== undefined) older.error = later.error;
  older.prose = new Prose((later.saysAll ? "" : older.prose.text) + later.prose.text);
  older.saysAll ||= later.saysAll;
}

/** A time that a clock can show. @param {Received} at */
const time = (at) => (Number.isInteger(at) && at > 0 && at < 253_402_214_400_000 ? at : undefined);

/** What the end of a turn says. @param {Update} end */
function ended({ interrupted, error, stopReason, _meta }) {
  if (interrupted === true || interrupted === null) return { outcome: interrupted ? "interrupted" : "unanswered" };
  const { words, resetsAt } = _meta?.["acphold/limit"] ?? {};
  if (typeof words === "string") return { outcome: "limited", message: words, resetsAt: time(resetsAt) };
  if (error !== undefined) return { outcome: "failed", message: string(error?.message) ?? undefined };
  return { outcome: OUTCOMES[asText(stopReason)] ?? "completed" };
}

/** A member of an announcement by our name, if it is there. @param {Update} update @param {string} ours @param {string} theirs */
const named = (update, ours, theirs) => (update[theirs] === null || typeof update[theirs] === "string" ? { [ours]: update[theirs] } : {});

/** opencode's words as the others would say it. @param {Update} params */
function opencodes({ type, childSessionId, parentSessionId, rootSessionId, update, status, title }) {
  if (type === "update") return { id: childSessionId, update };
  return {
    id: parentSessionId === rootSessionId ? "" : parentSessionId,
    update: { sessionUpdate: "subagent_state_update", subagentSessionId: childSessionId, state: status ?? undefined, name: title ?? undefined },
  };
}

/** The call that made a child; agents put it into their own part of `_meta`. @param {Update} update @returns {string | undefined} */
function callerOf(update) {
  for (const own of Object.values(update._meta ?? {})) {
    for (const name of ["parentToolCallId", "parentToolUseId", "toolCallId", "toolUseId"]) {
      const caller = own?.[name];
      if (typeof caller === "string") return caller;
    }
  }
  return undefined;
}
