// All that the page knows: the list of sessions, the sessions that are open here, what waits.
import { computed, signal } from "@preact/signals";
import { Feed } from "../wire/feed.js";
import { read } from "../wire/pages.js";
import { Server } from "../wire/server.js";
import * as sends from "./sends.js";
import { Session } from "./session.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/** When the inbox is read again that could not be read. */
const AGAIN_MS = 2000;

/**
 * @typedef {object} Waiting  an open question as the inbox has it: see `web.inbox`
 * @property {string} id
 * @property {string} sessionId
 * @property {number} seq
 * @property {string} at
 * @property {string} agent
 * @property {string} cwd
 * @property {string | null} title
 * @property {string} asks
 * @property {string} method
 * @property {any} params
 * @property {any} toolCall
 * @property {import("./permission.js").Shows} [shows]  what a request for permission shows
 */

/** @param {Row} row */
const isAtWork = (row) => row.live?.state === "running" || row.live?.state === "waiting";

export class Desk {
  /** @type {import("@preact/signals").Signal<Map<string, Row>>} */
  rows = signal(new Map());
  /** @type {import("@preact/signals").Signal<Waiting[]>} */
  inbox = signal([]);
  isListed = signal(false);
  /** @type {Map<string, Session>} */
  #sessions = new Map();
  #current = "";
  /** Where something was done that nobody has looked at here: the server knows only that this page has the session open. @type {Set<string>} */
  #unseen = new Set();
  #reading = false;
  #isStale = false;

  server = new Server({
    told: (method, params) => this.#told(method, params),
    asked: (id, method, params) => this.#asked(id, method, params),
    came: () => this.#came(),
    left: () => {
      this.feed.stop();  // it may be as dead, and would say so late
      this.#sessions.forEach((session) => session.detach());
    },
  });

  feed = new Feed({
    snapshot: (rows) => {
      this.rows.value = new Map(rows.map((row) => [row.sessionId, this.#seen(row)]));
      this.isListed.value = true;
      void this.readInbox();
    },
    change: ({ session, gone }) => {
      const rows = new Map(this.rows.value);
      const was = rows.get(session?.sessionId ?? gone ?? "");
      if (session && was && !isAtWork(session) && (isAtWork(was) || was.messageCount < session.messageCount) && session.sessionId !== this.#current) {
        this.#unseen.add(session.sessionId);
      }
      if (session) rows.set(session.sessionId, this.#seen(session));
      else if (gone) rows.delete(gone);
      this.rows.value = rows;
      if (String(was?.live?.questions ?? "") !== String(session?.live?.questions ?? "")) void this.readInbox();
    },
  });

  /** Rows that are no archived ones, the one that changed last first. */
  listed = computed(() =>
    [...this.rows.value.values()].filter((row) => !row.archived).sort((a, b) => b.updatedAt.localeCompare(a.updatedAt)),
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
    void this.#takeOver();
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

  /** Somebody looks at this session. @param {string} id */
  look(id) {
    this.#current = id;
    this.#unseen.delete(id);
    const row = this.rows.peek().get(id);
    if (row?.unseen) this.rows.value = new Map(this.rows.peek()).set(id, { ...row, unseen: false });
    const session = this.session(id);
    void session.open();
    return session;
  }

  /** Nobody looks at it any more. */
  leave() {
    this.#current = "";
  }

  /** @param {Row} row */
  #seen(row) {
    return this.#unseen.has(row.sessionId) ? { ...row, unseen: true } : row;
  }

  /** Begin a session. @param {string} agent @param {string} cwd */
  async begin(agent, cwd) {
    const told = await this.server.call("session/new", { cwd, mcpServers: [], _meta: { "acphold/agent": agent } });
    const session = new Session(told.sessionId, cwd, this.server);
    session.timeline.hasModes(told.modes);
    session.timeline.state.options = told.configOptions ?? undefined;
    session.introduction.value = told._meta?.["acphold/introduction"] ?? null;
    session.isAttached.value = true;
    session.status.value = "ready";
    this.#sessions.set(told.sessionId, session);
    return session;
  }

  /** Read what waits; who asks meanwhile has it read once more. */
  async readInbox() {
    this.#isStale = true;
    if (this.#reading) return;
    this.#reading = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        // What was kept here is for who is offline: it has none of what is asked now.
        const told = await read("/inbox", {}, { cache: this.server.isHere ? "no-store" : "default" }).catch(() => null);
        if (!told) {
          if (this.server.isHere) setTimeout(() => this.readInbox(), AGAIN_MS);  // else it is read when it is
          return;
        }
        this.inbox.value = told.questions;
        // What is answered here is asked of this page, so it has to be there.
        for (const each of this.inbox.value) void this.#attend(each.sessionId, each.cwd);
      }
    } finally {
      this.#reading = false;
    }
  }

  /** @param {string} id @param {string} cwd */
  async #attend(id, cwd) {
    if (this.#sessions.get(id)?.isAttached.value) return;
    const session = this.session(id);
    session.cwd = cwd;
    await session.open();
  }

  // -- the connection --------------------------------------------------------------------------

  #came() {
    this.feed.start();
    for (const [id, session] of this.#sessions) {
      const isWanted = id === this.#current || session.sending.value.length > 0 || session.asked.value.length > 0;
      if (isWanted) void session.open();
      else this.#sessions.delete(id);
    }
    void this.readInbox();
  }

  /** @param {string} method @param {any} params */
  #told(method, params) {
    if (method === "session/update" || method === "opencode/session/child_update") {
      const meta = params._meta ?? {};
      const id = meta["acphold/parent"] ?? params.rootSessionId ?? params.sessionId;
      this.#sessions.get(id)?.told(params);
    } else if (method === "$/cancel_request") {
      for (const session of this.#sessions.values()) session.wasWithdrawn(params.id ?? params.requestId);
    }
  }

  /** @param {number | string} request @param {string} method @param {any} params */
  #asked(request, method, params) {
    if (method !== "session/request_permission" && method !== "elicitation/create") {
      this.server.refuse(request, -32601, "Method not found");
      return;
    }
    const session = this.#sessions.get(params.sessionId) ?? this.#sessions.get(params._meta?.["acphold/parent"]);
    if (session) session.wasAsked(request, method, params);
    else this.server.refuse(request, -32601, "This page does not have that session open");
  }

  /** What an earlier page has kept and nobody else is sending. */
  async #takeOver() {
    for (const { id } of await sends.kept().catch(() => [])) {
      void sends.alone(id, async () => {
        const left = (await sends.kept()).find((each) => each.id === id);
        if (!left) return;  // the page that had it is done with it
        const session = this.session(left.sessionId);
        void session.open();
        await session.resumeSending(left);
      });
    }
  }
}
