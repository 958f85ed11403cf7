// One session that somebody looks at, or that waits for them: its end is read first, then followed.
//
//   load     the last page of the journal: as it was read last on this device, then over HTTP as it is
//   follow   session/resume to read, where it is live: what was missed, then what comes
//   attach   the same to act in it, which may start its agent: somebody writes, or chooses something
//
// After every loss of the connection it is attached again behind the last position. Where the
// server cannot go on from there (a turn was put in order meanwhile), the end is read anew.
import { signal } from "@preact/signals";
import { LostError, RpcError } from "../wire/connection.js";
import { device } from "../wire/device.js";
import { SessionLine } from "../wire/line.js";
import { end, entries, read, session as rowOf } from "../wire/pages.js";
import { Draft } from "./draft.js";
import { drawn } from "./frames.js";
import * as sends from "./sends.js";
import { asText } from "./text.js";
import { OUTCOMES } from "./tables.js";
import { held, Timeline } from "./timeline.js";

const INVALID_PARAMS = -32602;
/** The agent of the session is not served: a person says which one continues it. */
const OTHER_AGENT = -32051;

/** Items, and characters that an agent said in them, that are kept while somebody reads at the end: whoever goes up has them read again. */
const MOST_ITEMS = 600;
const MOST_SAID = 400_000;
const LEAST_ITEMS = 20;
/** Characters of all that they hold: what tools have shown, pictures. */
const MOST_HELD = 8_000_000;

/** Entries of a page that is read when somebody goes up, or looks for a place. */
const OLDER = 200;
const SOUGHT = 500;

/** Characters that fill a screen. */
const SCREEN = 4000;

/**
 * @typedef {object} OpenQuestion  one that this page can answer
 * @property {string} id  the one of the journal
 * @property {number | string} request  the one of the connection
 * @property {string} method
 * @property {Received} params
 * @property {"open" | "answering"} state
 *
 * @typedef {{status?: number, message: string}} Failure  of a request; without a status it did not arrive
 */

/**
 * @typedef {object} Queued  a queued prompt in the session, whoever wrote it
 * @property {string} id
 * @property {string} words  the beginning of its text
 * @property {number} [at]  the moment before which it does not begin
 * @property {string} [client]
 *
 * @typedef {{id: string, words: string, state: string, at: number}} EndedPrompt  `state` is `done`, `takenBack` or how its turn ended
 * @typedef {{waiting?: Queued[], begun?: Queued, held?: string, until?: number, ended?: EndedPrompt[], edited?: string[], goesOn?: boolean, restarts?: boolean}} Queue  what is left out is not so
 */

/** The place of what comes now. @returns {import("./timeline.js").Place} */
const now = (seq = 0) => ({ seq, at: new Date().toISOString() });

export class Session {
  timeline = new Timeline();
  /** Counts changes of the timeline: views that show it read this. */
  changes = signal(0);
  /** @type {import("@preact/signals").Signal<"loading" | "ready" | "missing" | "failed">} */
  status = signal("loading");
  /** @type {import("@preact/signals").Signal<string>} */
  problem = signal("");
  /** @type {import("@preact/signals").Signal<OpenQuestion[]>} */
  questions = signal([]);
  /** As the line has them. @type {import("@preact/signals").Signal<import("../wire/line.js").Sending[]>} */
  sending = signal([]);
  /** How many prompts are being kept on this device, before they are sent. */
  keeping = signal(0);
  /** What its agent has answered to `initialize`. @type {import("@preact/signals").Signal<Received>} */
  introduction = signal(null);
  /** The queued prompts in it; null where its process keeps none. @type {import("@preact/signals").Signal<Queue | null>} */
  queue = signal(null);
  /** The id of the queued prompt that is edited here; "" for none. */
  edited = signal("");
  /** Somebody here has stopped a turn with prompts behind it: the page asks whether they continue, or has to `continue` with them once the turn is over; see view/waiting.js. @type {import("@preact/signals").Signal<"" | "ask" | "continue">} */
  afterStop = signal("");
  isAttached = signal(false);
  /** Whether it is open to act in it, and not only to read it. */
  #acts = false;
  /** As the list had it last: that of the page has neither old ones nor what is archived. @type {import("@preact/signals").Signal<import("../wire/pages.js").Row | undefined>} */
  row = signal(/** @type {import("../wire/pages.js").Row | undefined} */ (undefined));
  #isOld = false;
  /** Of the end that is shown. @type {string | null | undefined} */
  #tag;
  /** Set while its agent is not served, and nobody has chosen another one to continue it: it can only be read. @type {import("@preact/signals").Signal<{agent: string, served: string[]} | null>} */
  otherAgent = signal(null);
  /** Where the page before the first one ends, null at the beginning of the session. @type {import("@preact/signals").Signal<number | null>} */
  before = signal(null);
  /** Our id of the prompt whose turn ran when the end was read. @type {string | null} */
  #begun = null;
  /** What this device may do here, null until that is read. @type {import("@preact/signals").Signal<string[] | null>} */
  #scopes = signal(null);
  /** Items at the beginning of the timeline that are not drawn yet: what is seen is drawn first. */
  undrawn = signal(0);
  /** @type {() => void} */
  #isSeen = () => {};
  /** Until there is something to be seen, or a reason why not. @type {Promise<void>} */
  seen = new Promise((resolve) => (this.#isSeen = resolve));
  /** Whether what comes may push out what was before: somebody reads at the end. */
  isAtEnd = signal(true);

  /** @type {Map<string, () => void>} */
  #whenFinished = new Map();
  /** Prompts that waited when somebody here stopped all, and of which nothing was heard since. @type {Set<string>} */
  #stopped = new Set();
  /** Those of them that are over. @type {sends.Kept[]} */
  #notBegun = [];
  #line = new SessionLine();
  /** @type {Received[]} */
  #pending = [];
  /** Up to this entry, the server repeats what this page has been told as a reader. */
  #saidAgain = 0;
  #flushing = false;
  #frameMs = 0;
  /** @type {Promise<void> | null} */
  #loadingOlder = null;
  /** @type {Promise<void> | null} */
  #attaching = null;
  /** @type {Promise<void> | null} */
  #loading = null;
  /** @param {string} id @param {string} cwd  "" while that is not known @param {import("../wire/server.js").Server} server */
  constructor(id, cwd, server) {
    this.id = id;
    this.cwd = cwd;
    this.server = server;
    this.draft = new Draft(id);
    this.edited.value = sessionStorage.getItem(`edited ${id}`) ?? "";
    this.isAtEnd.subscribe((isAtEnd) => isAtEnd && this.#isOld && this.#readAgain());
  }

  /** Read the end, and follow it where it is live. @param {import("../wire/pages.js").Row} [row] */
  async open(row) {
    // Behind what there is to be seen: the browser has its hands full until then.
    const asked = row ?? this.seen.then(drawn).then(() => rowOf(this.id)).catch(() => null);
    try {
      await (this.#loading ??= this.#load());
    } catch (error) {
      this.#loading = null;
      const isMissing = /** @type {Failure} */ (error).status === 404;
      if (isMissing) this.#show({ entries: [], before: null });  // whatever was read of it once
      this.status.value = isMissing ? "missing" : "failed";
      this.problem.value = String(/** @type {Failure} */ (error).message);
      this.#isSeen();
      return;
    }
    if (this.sending.value.some(({ state }) => state !== "failed")) return void (await this.attach());
    const now = await asked;
    if (now) this.hear(now);
  }

  /** How it stands: what is live, or has a queue, is followed; of anything else the end is read again when it has changed. @param {import("../wire/pages.js").Row} row */
  hear(row) {
    const was = this.row.peek();
    this.row.value = row;
    this.cwd ||= row.cwd;
    if (this.isAttached.value || this.status.value !== "ready") return;
    if (row.live || row.queued) void this.#take(true);
    else if (was && was.updatedAt !== row.updatedAt) this.#readAgain();
  }

  /** What another program has said in it comes when somebody is at the end: until then nothing moves. */
  #readAgain() {
    this.#isOld = !this.isAtEnd.value;
    if (!this.#isOld) (this.#loading = this.#load()).catch(() => {});
  }

  /** It was just made over this connection: there is nothing to read. @param {Received} told  the answer of session/new */
  started(told) {
    this.#loading = Promise.resolve();
    this.status.value = "ready";
    this.#isSeen();
    this.#attached(told, false);
  }

  /** Whether this device may do that: somebody else's session is shared for less. @param {string} scope */
  permits(scope) {
    return (this.#scopes.value ?? device()?.scopes ?? []).includes(scope);
  }

  /** Take the connection that there is now, to act in it. */
  async attach() {
    await this.#attaching;
    return this.#take(false);
  }

  /** @param {boolean} reads */
  #take(reads) {
    if (!this.server.isOnline || this.status.value === "missing") return Promise.resolve();
    return (this.#attaching ??= this.#attach(reads).finally(() => (this.#attaching = null)));
  }

  /** Before something is asked of its agent. */
  async #act() {
    await this.attach();
    if (!this.#acts) throw new Error(this.problem.value || "The session is not open.");
  }

  /** The connection is lost: its questions are void, and prompts may not have arrived. */
  detach() {
    this.#flush();  // what had come still means what it meant then
    this.isAttached.value = this.#acts = false;
    this.questions.value = this.questions.value.filter((each) => each.state === "answering");
    this.#line.lost();
    this.#sendingChanged();
  }

  /** Read the page before the first one, or wait for the one that is being read. @param {number} [limit] */
  loadOlder(limit = SOUGHT) {
    return (this.#loadingOlder ??= this.#loadBefore(this.before.value, limit).finally(() => (this.#loadingOlder = null)));
  }

  /** @param {number | null} before @param {number} limit */
  async #loadBefore(before, limit) {
    if (before === null) return;
    try {
      const page = await entries(this.id, before, limit, this.#line.lineage);
      if (this.before.value !== before) return;
      const older = new Timeline();
      for (const entry of page.entries.reverse()) older.addEntry(entry);
      const { length } = this.timeline.items;
      this.timeline.prepend(older);
      this.undrawn.value += this.timeline.items.length - length;
      this.before.value = page.before;
      this.#changed();
    } catch (error) {
      // Put in order since: what is read now fits together, and nothing else does. What comes
      // meanwhile would belong to neither, so the end is read before a new connection is attached.
      if (/** @type {Failure} */ (error).status === 409) {
        this.#loading = this.#tag = null;
        this.server.connectNow();
      }
    }
  }

  /** A person scrolls up: draw the screen above, or read the page before. */
  showEarlier() {
    if (this.undrawn.value === 0) return this.loadOlder(OLDER);
    this.undrawn.value = aScreenAbove(this.timeline.items, this.undrawn.value);
  }

  /** Read older pages until an entry is there, and drawn; whether it is. @param {number} seq */
  async loadTo(seq) {
    const has = () => this.timeline.items.some((item) => item.seq > 0 && item.seq <= seq);
    while (!has() && this.before.value !== null && this.before.value > 0) {
      const before = this.before.value;
      await this.loadOlder();
      if (this.before.value === before) break;
    }
    await this.drawAll();
    return has();
  }

  /** Draw all that was read, a screen in each task. */
  async drawAll() {
    while (this.undrawn.value > 0) {
      this.undrawn.value = aScreenAbove(this.timeline.items, this.undrawn.value);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  // -- incoming ------------------------------------------------------------------------------

  /** @param {Received} params  of session/update, or of what opencode tells of a child */
  receive(params) {
    this.#pending.push(params);
    if (this.#flushing) return;
    this.#flushing = true;
    const flush = () => {
      this.#flushing = false;
      this.#flush();
    };
    // A page that nobody sees has no frames; and where a frame takes long, there are fewer of them.
    const pause = document.hidden ? 200 : Math.min(250, 3 * this.#frameMs);
    if (pause > 24) setTimeout(flush, pause);
    else requestAnimationFrame(flush);
  }

  #flush() {
    const begun = performance.now();
    setTimeout(() => (this.#frameMs = performance.now() - begun));  // behind what draws it
    const due = this.#pending;
    this.#pending = [];
    for (const params of due) {
      const seq = params._meta?.["acphold/seq"] ?? 0;
      if (seq && seq <= this.#saidAgain) continue;
      if (seq) this.#saidAgain = 0;
      const place = now(seq);
      this.timeline.guarded(place, () => {
        if (params.childSessionId !== undefined) this.timeline.addChild({ method: "opencode", params }, place);
        else if (params.sessionId !== this.id) this.timeline.addChild(params, place);
        else if (params.update?._meta?.["acphold/begun"]) this.#promptBegan(place);
        else this.timeline.addLive(params.update, place);
      });
      this.#line.told(seq);
    }
    if (this.isAtEnd.value) this.#trim();
    this.#changed();
  }

  /** Drop what is far above, now and then. */
  #trim() {
    const { items } = this.timeline;
    const { length } = items;
    const all = items.reduce((sum, item) => sum + said(item), 0);
    const whole = items.reduce((sum, item) => sum + held(item), 0);
    if (length <= MOST_ITEMS * 1.5 && all <= MOST_SAID * 1.5 && whole <= MOST_HELD * 1.5) return;
    let kept = 0;
    for (let sum = 0, size = 0; kept < Math.min(length, MOST_ITEMS) && (sum < MOST_SAID || kept < LEAST_ITEMS); kept++) {
      const item = items[length - 1 - kept];
      size += held(item);
      if (kept > 0 && size > MOST_HELD) break;
      sum += said(item);
    }
    const first = this.timeline.trim(kept);
    this.undrawn.value = Math.max(0, this.undrawn.value - (length - items.length));
    if (first) this.before.value = first;
  }

  #changed() {
    this.changes.value++;
  }

  /** The agent asks a person. @param {number | string} request @param {string} method @param {Received} params */
  addQuestion(request, method, params) {
    const id = params._meta?.["acphold/question"] ?? asText(request);
    const given = this.#line.given(id);
    this.#flush();  // what was told before it stands before it
    this.timeline.addQuestion(id, method, params, now());
    this.#put({ id, request, method, params, state: given ? "answering" : "open" });
    // It was answered, and the answer was lost on its way: it is given again, nobody is asked.
    if (given) this.#give(id, request, given);
  }

  /** Another client has answered a question, or it is over. @param {number | string} request */
  withdrawQuestion(request) {
    const over = this.questions.value.find((each) => each.request === request);
    if (!over || this.#attaching) return;  // it is asked again over the line that is being taken
    this.#questionOver(over.id);
    /** @param {Received} told */
    const find = (told) => told.decisions.find((/** @type {Received} */ each) => each.id === over.id);
    void read("/inbox/history", { session: this.id, limit: 50 }).then(find).catch(() => {}).then((found) => {
      this.timeline.addAnswer({ question: over.id, outcome: found?.how ?? "No longer pending", client: { name: found?.client } }, now());
      this.#changed();
    });
  }

  /** @param {OpenQuestion} question */
  #put(question) {
    // One that is known keeps its place: another must not come under a finger.
    const isKnown = this.questions.value.some((each) => each.id === question.id);
    this.questions.value = isKnown ? this.questions.value.map((each) => (each.id === question.id ? question : each)) : [...this.questions.value, question];
  }

  /** @param {OpenQuestion} question @param {object} result */
  answer(question, result) {
    const sent = sends.newId();
    const marked = { ...result, _meta: { "acphold/sent": { id: sent } } };
    this.#line.give(question.id, sent, marked);
    this.#put({ ...question, state: "answering" });
    this.timeline.addAnswer({ question: question.id, outcome: "answered", result }, now());
    this.#changed();
    this.#give(question.id, question.request, marked);
  }

  /** Send an answer, and forget it once the server has it. @param {string} id @param {number | string} request @param {object} result */
  #give(id, request, result) {
    this.server.answer(request, result);
    // Whoever reads in order has read it once it answers what was asked behind it.
    void this.server.ping().then((isHeard) => isHeard && this.#questionOver(id));
  }

  /** Nobody is waiting for an answer of ours any more. @param {string} id  of the question */
  #questionOver(id) {
    this.#line.arrived(id);
    this.questions.value = this.questions.value.filter((each) => each.id !== id);
  }

  // -- outgoing ----------------------------------------------------------------------------

  /** Keep a prompt, and send it as soon as possible. @param {Received[]} content @param {sends.Kept["later"]} [later]  for the queue */
  async prompt(content, later) {
    this.isAtEnd.value ||= !later;  // who writes wants to see what comes of it
    const kept = { id: sends.newId(), sessionId: this.id, content, at: Date.now(), after: null, later };
    this.keeping.value++;
    await sends.keep(kept).catch(() => {});  // a private window keeps nothing; it is sent all the same
    this.keeping.value--;
    void sends.alone(kept.id, () => this.resumeSending(kept));
    await this.attach();
  }

  /** Send what is kept, until it is over. @param {sends.Kept} kept @returns {Promise<void>} */
  resumeSending(kept) {
    this.#line.keep(kept);
    this.#sendingChanged();
    this.#send(kept);
    return new Promise((resolve) => this.#whenFinished.set(kept.id, resolve));
  }

  /** Discard a prompt that was not sent, or was refused. @param {sends.Kept} kept */
  async discard(kept) {
    kept.isReturned = false;
    this.#finish(kept);
  }

  /** End the turn that runs, and those that wait. */
  cancel() {
    for (const { kept, state } of this.sending.value) {
      if (kept.later || (state !== "sent" && state !== "arrived")) continue;
      this.#stopped.add(kept.id);
      kept.isReturned = true;  // also if the page is gone before the answer comes
      void sends.keep(kept).catch(() => {});
    }
    const { waiting, held } = this.queue.value ?? {};
    this.afterStop.value = waiting && !held ? "ask" : "";
    void this.attach().then(() => this.server.notify("session/cancel", { sessionId: this.id }));
  }

  /** Prompts that were stopped before they began are written on. @param {sends.Kept[]} prompts */
  async takeBack(prompts) {
    const isKept = await this.draft.takeBack(prompts.flatMap((each) => each.content));
    for (const each of isKept ? prompts : []) void sends.forget(each.id).catch(() => {});
  }

  /** @param {sends.Kept} kept */
  #send(kept) {
    if (!this.#acts) return;
    // An earlier page has sent it, and its turn runs.
    if (this.#begun === kept.id && this.#line.find(kept.id)?.state === "kept") this.#line.mark(kept.id, "again");
    const sent = this.#line.send(kept.id);
    if (!sent) return;
    const isAgain = sent.after !== undefined;
    if (!isAgain) void sends.keep(kept).catch(() => {});
    this.#sendingChanged();
    const asking = kept.later
      ? this.#enqueue(kept, isAgain).then(() => this.#finish(kept))
      : this.server
          .call("session/prompt", { sessionId: this.id, prompt: kept.content, _meta: { "acphold/sent": sent } })
          .then((result) => this.#promptEnded(kept, result.stopReason));
    asking.catch((error) => {
      if (error instanceof LostError) return;
      this.#flush();
      const isBegun = this.#line.find(kept.id)?.state === "begun";
      // Where the conversation says how its turn has ended, nothing else has to.
      if (isBegun && this.timeline.items.at(-1)?.kind === "end") this.#finish(kept);
      else this.#setState(kept, "failed", error.message);
    });
    void this.server.ping().then((isHeard) => {
      if (isHeard && this.#line.find(kept.id)?.state === "sent") this.#setState(kept, "arrived");
    });
  }

  /** Put a prompt into the queue, unless it got there over a connection that was lost since. @param {sends.Kept} kept @param {boolean} isAgain */
  async #enqueue({ id, content, later }, isAgain) {
    /** @type {Queue} */
    const { begun, waiting = [], ended = [] } = isAgain ? (await this.queueRequest()).queue : {};
    if ([begun, ...waiting, ...ended].some((each) => each?.id === id)) return;
    await this.queueRequest({ change: { do: "add", id, prompt: content, ...later } });
  }

  /** The turn of our oldest queued prompt has begun. @param {import("./timeline.js").Place} place */
  #promptBegan(place) {
    const sending = this.sending.value.find(({ kept, state }) => !kept.later && (state === "sent" || state === "arrived"));
    if (!sending) return;
    this.#setState(sending.kept, "begun");
    const _meta = { "acphold/client": { user: device()?.user } };
    for (const content of sending.kept.content) {
      this.timeline.addLive({ sessionUpdate: "user_message_chunk", messageId: `acphold-${sending.kept.id}`, content, _meta }, place);
    }
  }

  /** @param {sends.Kept} kept @param {string} stopReason */
  #promptEnded(kept, stopReason) {
    this.#flush();  // what was told before the answer stands before the end
    const sending = this.#line.find(kept.id);
    if (sending?.state === "begun") {
      this.timeline.endTurn({ outcome: OUTCOMES[stopReason] ?? "completed" }, now());
    }
    const wasStopped = this.#stopped.delete(kept.id);
    kept.isReturned = stopReason === "cancelled" && (wasStopped || sending?.state === "sent" || sending?.state === "arrived");
    if (kept.isReturned) {
      void sends.keep(kept).catch(() => {});
      this.#notBegun.push(kept);
    }
    if (this.#stopped.size === 0 && this.#notBegun.length > 0) {
      void this.takeBack(this.#notBegun);
      this.#notBegun = [];
    }
    this.#finish(kept);
    this.#changed();
  }

  /** It is answered, refused or discarded: forget it, unless it is `isReturned`. @param {sends.Kept} kept */
  #finish(kept) {
    if (!kept.isReturned) void sends.forget(kept.id).catch(() => {});
    this.#line.over(kept.id);
    this.#sendingChanged();
    this.#whenFinished.get(kept.id)?.();
    this.#whenFinished.delete(kept.id);
  }

  /** @param {sends.Kept} kept @param {import("../wire/line.js").PromptState} state @param {string} [error] */
  #setState(kept, state, error) {
    this.#line.mark(kept.id, state, error);
    this.#sendingChanged();
  }

  #sendingChanged() {
    this.sending.value = this.#line.sending;
  }

  // -- the queue of the session ---------------------------------------------------------------

  /** Read the queue, behind a `change` of it; with `read` also the content of the prompt with that id. @param {{change?: object, read?: string}} [what] */
  async queueRequest(what) {
    if (what?.change) await this.#act();
    const told = await this.server.call("_acphold/queue", { sessionId: this.id, ...what });
    this.hearQueue(told);
    return told;
  }

  /** Take the queue as it is now. @param {Received} told */
  hearQueue({ queue }) {
    this.queue.value = queue;
    // It was taken out meanwhile: what is written is another prompt.
    if (this.edited.value && !queue.waiting?.some((/** @type {Queued} */ each) => each.id === this.edited.value)) this.#edit("");
  }

  /** Write on with a queued prompt, which does not begin until it is put back. @param {string} id */
  async editQueued(id) {
    const { prompt } = await this.queueRequest({ change: { do: "take", id }, read: id });
    this.#edit(id);
    await this.draft.takeBack(prompt);
  }

  /** Put it back as it was, or with a change. @param {object} [change] */
  async putBack(change) {
    const id = this.edited.value;
    await this.queueRequest({ change: { do: "edit", id, ...change } });
    this.#edit("");
  }

  /** @param {string} id */
  #edit(id) {
    this.edited.value = id;
    sessionStorage.setItem(`edited ${this.id}`, id);  // beside the draft
  }

  // -- modes and options -----------------------------------------------------------------------

  /** @param {string} modeId */
  async setMode(modeId) {
    await this.#act();
    await this.server.call("session/set_mode", { sessionId: this.id, modeId });
    this.timeline.state.modeId = modeId;
    this.#changed();
  }

  /** @param {string} configId @param {string | boolean} value */
  async setOption(configId, value) {
    await this.#act();
    const type = typeof value === "boolean" ? { type: "boolean" } : {};
    const told = await this.server.call("session/set_config_option", { sessionId: this.id, configId, value, ...type });
    if (told?.configOptions) this.timeline.state.options = told.configOptions;
    this.#changed();
  }

  // -- reading and following -------------------------------------------------------------------

  async #load() {
    const isFirst = this.status.value === "loading";
    const { kept, now } = end(this.id, isFirst);
    // Later on what was kept is what does not fit any more.
    const first = isFirst ? await Promise.race([kept, now]) : null;
    if (first) this.#show(first);
    const page = await now;
    if (!page.tag || page.tag !== this.#tag) this.#show(page);
  }

  /** @param {import("../wire/pages.js").Page} page  the last one */
  #show(page) {
    const timeline = new Timeline();
    for (const entry of page.entries.toReversed()) timeline.addEntry(entry);
    this.#pending = [];
    this.#saidAgain = 0;
    this.timeline = timeline;
    const { modes, configOptions, availableCommands } = page.state ?? {};
    timeline.hasModes(modes);
    timeline.state.options = configOptions ?? timeline.state.options;
    timeline.state.commands = availableCommands ?? timeline.state.commands;
    this.#tag = page.tag;
    this.undrawn.value = aScreenAbove(timeline.items, timeline.items.length);
    this.#line.begin(page.entries[0]?.seq ?? 0, page.lineage ?? "");
    this.before.value = page.before;
    this.#scopes.value = page.may ?? null;
    this.#begun = page.begun ?? null;
    this.status.value = "ready";
    this.#isSeen();
    this.#changed();
  }

  /** Take the connection; why that failed stands in `problem`, and the next connection tries again. @param {boolean} reads */
  async #attach(reads) {
    try {
      await this.#resume(reads);
    } catch (error) {
      if (error instanceof LostError) return;
      if (error instanceof RpcError && error.code === OTHER_AGENT) {
        const { "acphold/agent": agent, "acphold/allAgents": served } = error.data ?? {};
        this.otherAgent.value = { agent: asText(agent), served: (served ?? []).map(asText) };
        this.problem.value = "";
      } else this.problem.value = String(/** @type {Failure} */ (error).message);
    }
  }

  /** @param {boolean} reads */
  async #resume(reads) {
    await this.#loading?.catch(() => {});  // who began it says so
    if (this.#acts || (reads && this.isAttached.value) || this.status.value !== "ready") return;
    // A session is opened in its own folder, and in no other.
    this.cwd ||= (await rowOf(this.id)).cwd;
    const { position } = this.#line;
    try {
      this.#attached(await this.server.call("session/resume", this.#resumeParams(reads)), reads);
    } catch (error) {
      const isTooOld = error instanceof RpcError && error.code === INVALID_PARAMS && position === this.#line.position;
      if (!isTooOld) throw error;
      this.#tag = null;
      await this.#load();
      this.#attached(await this.server.call("session/resume", this.#resumeParams(reads)), reads);
    }
  }

  /** What `session/resume` is asked with. @param {boolean} reads */
  #resumeParams(reads) {
    return {
      sessionId: this.id,
      cwd: this.cwd,
      mcpServers: [],
      _meta: { ...this.#line.resume(), ...(reads && { "acphold/reads": true }) },
    };
  }

  /** @param {Received} told  the answer of session/resume, or of session/new @param {boolean} reads */
  #attached(told, reads) {
    if (this.isAttached.value) {  // it was told what happened until this answer
      this.#flush();
      this.#saidAgain = this.#line.position;
    }
    this.problem.value = "";
    this.otherAgent.value = null;
    this.#acts = !reads;
    this.isAttached.value = true;
    this.introduction.value = told._meta?.["acphold/introduction"] ?? null;
    this.timeline.hasModes(told.modes);
    if (told.configOptions) this.timeline.state.options = told.configOptions;
    this.#line.opened(told._meta?.["acphold/lineage"], told._meta?.["acphold/answered"]);
    this.questions.value = this.questions.value.filter((each) => each.state === "open" || this.#line.given(each.id));
    for (const each of this.sending.value) this.#send(each.kept);
    const again = this.edited.value && !reads ? { change: { do: "take", id: this.edited.value } } : undefined;
    void this.queueRequest(again).catch(() => again && (this.#edit(""), this.queueRequest())).catch(() => {}); // its answer has the queue
    this.#changed();
  }
}

/** Where what fills a screen begins, if it ends before the item at `end`. @param {import("./timeline.js").Item[]} items @param {number} end */
function aScreenAbove(items, end) {
  let at = end;
  for (let shown = 0; at > 0 && shown < SCREEN; at--) {
    shown += Math.max(200, said(items[at - 1]));
  }
  return at;
}

/** Characters that an agent said: what is tall on the screen. @param {import("./timeline.js").Item} item */
const said = (item) => (item.kind === "said" && item.role === "agent" ? item.prose.text.length : 0);
