// The state of the page: the list of sessions, the sessions that are open here, pending questions.
import { computed, effect, signal } from "@preact/signals";
import { Feed } from "../wire/feed.js";
import { sessions } from "../wire/pages.js";
import { Server } from "../wire/server.js";
import * as sends from "./sends.js";
import { Session } from "./session.js";
import { byTime } from "./times.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/**
 * @typedef {object} Waiting  an open question as the rows have it
 * @property {string} id
 * @property {string} sessionId
 * @property {number} seq
 * @property {string} at
 * @property {string} agentName
 * @property {string} cwd
 * @property {string | null} title
 * @property {string} asks
 * @property {string} method
 * @property {Received} params
 * @property {Received} toolCall
 * @property {import("./questions.js").Shows} [shows]  what a request for permission shows
 */

/** @typedef {{words: string, undo?: () => void, about?: string}} Notice */

/** @param {Row} row */
const isAtWork = (row) => row.live?.state === "running" || row.live?.state === "waiting";

export class Desk {
  /** @type {import("@preact/signals").Signal<Map<string, Row>>} */
  rows = signal(new Map());
  /** What waits for a person, the oldest first. @type {import("@preact/signals").ReadonlySignal<Waiting[]>} */
  inbox = computed(() => [...this.rows.value.values()].flatMap((row) => row.openQuestions ?? []).sort((a, b) => byTime(a.at, b.at)));
  isListed = signal(false);
  /** Whether older ones than `rows` exist. */
  isCut = signal(false);
  /** How often all of the list was told: what was read beside it is read again then. */
  tellings = signal(0);
  /** Sessions that were deleted since, which may be among what was read beside it. @type {import("@preact/signals").Signal<Set<string>>} */
  gone = signal(new Set());
  /** What is typed into the search over all sessions. */
  sought = signal("");
  /** Hits of that search in what was said, as many as are shown; null until they are known. @type {import("@preact/signals").Signal<number | null>} */
  hits = signal(/** @type {number | null} */ (null));
  /** Sessions that the list shows for that search. @type {import("@preact/signals").Signal<Set<string>>} */
  titled = signal(new Set());
  /** Sessions that nobody sees here any more: they are about to be deleted. @type {import("@preact/signals").Signal<Set<string>>} */
  hidden = signal(new Set());
  /** Sessions that are chosen to be acted on together, as they were then; null while nobody chooses. @type {import("@preact/signals").Signal<Map<string, Row> | null>} */
  chosen = signal(/** @type {Map<string, Row> | null} */ (null));
  #lastChosen = "";
  /** What was just done to sessions. @type {import("@preact/signals").Signal<Notice[]>} */
  notices = signal([]);
  /** What was done last and can be undone, also when it is shown no more. @type {Notice | undefined} */
  deed;
  /** @type {Map<string, Session>} */
  #sessions = new Map();
  #current = "";
  /** Sessions with news that nobody has seen here: the server only knows that this page has them open. @type {Set<string>} */
  #unseen = new Set();
  #since = new Date().toISOString();

  server = new Server({
    onNotification: (method, params) => this.#onNotification(method, params),
    onRequest: (id, method, params) => this.#onRequest(id, method, params),
    onConnected: () => this.#onConnected(),
    onLost: () => {
      this.feed.stop();  // it may be as dead, and would say so late
      this.#sessions.forEach((session) => session.detach());
    },
  });

  feed = new Feed({
    snapshot: (rows, isCut) => {
      this.#list(rows, isCut);
      this.tellings.value++;
      rows.forEach((row) => this.#heard(row));
    },
    change: ({ session, gone }) => {
      const rows = new Map(this.rows.value);
      const was = rows.get(session?.sessionId ?? gone ?? "");
      if (session) rows.set(session.sessionId, this.#seen(session));
      else if (gone) rows.delete(gone);
      this.rows.value = rows;
      if (gone) this.gone.value = new Set(this.gone.value).add(gone);
      if (session && (session.sessionId === this.#current || String(was?.live?.questions ?? "") !== String(session.live?.questions ?? ""))) this.#heard(session);
    },
  });

  /** Rows that are no archived ones, the one that changed last first. */
  listed = computed(() =>
    [...this.rows.value.values()].filter((row) => !row.archived && !this.hidden.value.has(row.sessionId)).sort((a, b) => byTime(b.updatedAt, a.updatedAt)),
  );

  /** Connect, and follow the list while somebody looks. */
  start() {
    this.server.start();
    this.feed.start();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.feed.stop();
      else this.feed.start();
    });
    addEventListener("online", () => this.feed.start());
    // Where the server is away from the first, the list is that of before: what was read is kept here.
    effect(() => {
      const isOffline = this.server.link.value.state === "offline";
      if (isOffline === this.isListed.value) return;
      void sessions({}).then(({ sessions, nextCursor }) => this.isListed.peek() || this.#list(sessions, Boolean(nextCursor)), () => {});
    });
    void this.#sendKept();
  }

  /** The session of this id, which is then open. @param {string} id */
  session(id) {
    let session = this.#sessions.get(id);
    if (!session) {
      session = new Session(id, this.rows.value.get(id)?.cwd ?? "", this.server);
      this.#sessions.set(id, session);
    }
    return session;
  }

  /** Make this session the one on the screen. @param {string} id */
  show(id) {
    this.#current = id;
    this.#unseen.delete(id);
    const row = this.rows.peek().get(id);
    if (row?.unseen) this.rows.value = new Map(this.rows.peek()).set(id, { ...row, unseen: false });
    const session = this.session(id);
    void session.open(row);
    return session;
  }

  /** @param {Row} row */
  #heard(row) {
    if (row.sessionId === this.#current) this.session(row.sessionId).hear(row);
    this.#openForQuestions(row);
  }

  /** It is no longer on the screen; another one may be there already. @param {string} id */
  hideCurrent(id) {
    if (this.#current === id) this.#current = "";
  }

  /** @param {string[]} ids @param {boolean} isHidden */
  hide(ids, isHidden) {
    const hidden = new Set(this.hidden.peek());
    for (const id of ids) hidden[isHidden ? "add" : "delete"](id);
    this.hidden.value = hidden;
  }

  /** Choose a session, or choose it no more; with `among`, the listed ones, all from the last one on. @param {Row} row @param {Row[]} [among] */
  choose(row, among = []) {
    const chosen = new Map(this.chosen.peek());
    const ends = [row.sessionId, this.#lastChosen].map((id) => among.findIndex((each) => each.sessionId === id)).sort((a, b) => a - b);
    if (ends[0] >= 0) among.slice(ends[0], ends[1] + 1).forEach((each) => chosen.set(each.sessionId, each));
    else if (!chosen.delete(row.sessionId)) chosen.set(row.sessionId, row);
    this.#lastChosen = row.sessionId;
    this.chosen.value = chosen;
  }

  /** @param {Row[]} rows @param {boolean} isCut */
  #list(rows, isCut) {
    this.isCut.value = isCut;
    this.rows.value = new Map(rows.map((row) => [row.sessionId, this.#seen(row)]));
    this.isListed.value = true;
  }

  /** As somebody here has seen it; what it did since the row before is news. @param {Row} row */
  #seen(row) {
    const id = row.sessionId;
    if (id === this.#current) return row.unseen ? { ...row, unseen: false } : row;
    const was = this.rows.peek().get(id);
    // One that began elsewhere meanwhile may be over when it is first heard of.
    const isNews = was ? isAtWork(was) || was.messageCount < row.messageCount : row.messageCount > 0 && row.createdAt > this.#since && !this.#sessions.has(id);
    if (isNews && !isAtWork(row)) this.#unseen.add(id);
    return this.#unseen.has(id) && !row.unseen ? { ...row, unseen: true } : row;
  }

  /** Begin a session. @param {string} agent @param {string} cwd @param {{include: boolean}} [worktree]  in a new work tree of the repository */
  async newSession(agent, cwd, worktree) {
    const told = await this.server.call("session/new", { cwd, mcpServers: [], _meta: { "acphold/agent": agent, "acphold/worktree": worktree } });
    const session = new Session(told.sessionId, told._meta?.["acphold/cwd"] ?? cwd, this.server);
    session.started(told);
    this.#sessions.set(told.sessionId, session);
    return session;
  }

  /** Only a page that has the session open is asked its questions. @param {Row} row */
  #openForQuestions(row) {
    if (!row.openQuestions?.length || this.#sessions.get(row.sessionId)?.isAttached.value) return;
    const session = this.session(row.sessionId);
    void session.open(row);
  }

  // -- the connection --------------------------------------------------------------------------

  #onConnected() {
    this.feed.start();
    for (const [id, session] of this.#sessions) {
      const isWanted = id === this.#current || session.sending.value.length + session.questions.value.length > 0;
      if (isWanted) void session.open(this.rows.peek().get(id));
    }
    this.rows.peek().forEach((row) => this.#openForQuestions(row));
  }

  /** @param {string} method @param {Received} params */
  #onNotification(method, params) {
    if (method === "session/update" || method === "opencode/session/child_update") {
      const meta = params._meta ?? {};
      const id = meta["acphold/parent"] ?? params.rootSessionId ?? params.sessionId;
      this.#sessions.get(id)?.receive(params);
    } else if (method === "_acphold/queue") this.#sessions.get(params.sessionId)?.hearQueue(params);
    else if (method === "$/cancel_request") {
      for (const session of this.#sessions.values()) session.withdrawQuestion(params.id ?? params.requestId);
    }
  }

  /** @param {number | string} request @param {string} method @param {Received} params */
  #onRequest(request, method, params) {
    if (method !== "session/request_permission" && method !== "elicitation/create") {
      this.server.refuse(request, -32601, "Method not found");
      return;
    }
    const session = this.#sessions.get(params.sessionId) ?? this.#sessions.get(params._meta?.["acphold/parent"]);
    if (session) session.addQuestion(request, method, params);
    else this.server.refuse(request, -32601, "This page does not have that session open");
  }

  /** Send what an earlier page has kept, and no other page is sending. */
  async #sendKept() {
    const before = await sends.kept().catch(() => []);
    for (const { id } of before.filter((each) => !each.isReturned)) {
      void sends.alone(id, async () => {
        const left = (await sends.kept()).find((each) => each.id === id);
        if (!left) return;  // the page that had it is done with it
        const session = this.session(left.sessionId);
        if (left.isReturned) {
          await session.takeBack([left]);
          return;
        }
        void session.open();
        await session.resumeSending(left);
      });
    }
    // Those of a session together: they are written in their order.
    const returned = before.filter((each) => each.isReturned).map(({ id }) => sends.alone(id, async () => (await sends.kept()).find((each) => each.id === id)));
    for (const left of (await Promise.all(returned)).reverse()) {
      if (left) await this.session(left.sessionId).takeBack([left]);
    }
  }
}
