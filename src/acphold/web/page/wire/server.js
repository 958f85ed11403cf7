// The server, over one connection that is made again whenever it is lost, by whatever way.
//
//   online      connected
//   connecting  for the first time or again; `since` is when the connection was lost, or was last
//               heard of, if it was lost unnoticed
//   offline     the last try has failed; another one follows
//   unpaired    this device is not, or no longer, paired: nothing is tried until it is
//
// A page that was suspended finds its socket open, and dead. So it is not believed: whoever comes
// back from the background, from a network that was away, or to a silent socket, gets a new one.
import { signal } from "@preact/signals";
import { Connection, LostError } from "./connection.js";
import { device, remember, request, subprotocols } from "./device.js";

/** @typedef {{state: "online" | "connecting" | "offline" | "unpaired", since: number, why?: string}} Link */

const PING_MS = 15_000;
const LATE_MS = 8_000;
/** How long nothing has been heard when who comes back is given a new socket without asking. */
const STALE_MS = 20_000;
/** How long a page nobody sees keeps its socket: it costs a phone's battery. */
const HIDDEN_MS = 5 * 60_000;
/** How often this device says that it is still used: what is not used for long is signed out. */
const RENEW_MS = 24 * 60 * 60_000;
/** How long connecting may take before anybody is told. */
export const UNNOTICED_MS = 1200;
const AGAIN_MS = [300, 1000, 2000, 4000, 8000];

/** Nothing has this folder, so that the answer is as short as an answer can be. */
const NOWHERE = "/nowhere";

const OFFER = {
  auth: {},
  elicitation: { form: {}, url: {} },
  session: { notices: {}, compaction: {}, configOptions: { boolean: {} } },
  subagents: {},
  _meta: {
    "acphold/allAgents": true,
    "acphold/positions": true,
    "acphold/begun": true,
    "acphold/queue": true,
    "opencode/child-session-updates": true,
  },
};

/**
 * @typedef {object} Client  handles what arrives
 * @property {(id: number | string, method: string, params: Received) => void} onRequest
 * @property {(method: string, params: Received) => void} onNotification
 * @property {() => void} onConnected  a new connection is ready
 * @property {() => void} onLost  pending requests of the server are void
 */

export class Server {
  /** @type {import("@preact/signals").Signal<Link>} */
  link = signal({ state: "connecting", since: Date.now() });
  /** The agents that are served, the default one first. @type {import("@preact/signals").Signal<string[]>} */
  agents = signal([]);
  /** Where it offers to begin; "" if it does not say. */
  folder = "";
  /** The home of its user, as `folder`. */
  home = "";
  /** @type {Received} */
  capabilities = {};
  /** @type {Connection | null} */
  #connection = null;
  #tries = 0;
  #again = 0;
  #hiddenAt = 0;
  #renewedAt = 0;
  /** @type {Client} */
  #client;

  /** @param {Client} client */
  constructor(client) {
    this.#client = client;
  }

  /** Connect, and stay so until the page ends. */
  start() {
    this.#connect();
    setInterval(() => this.#check(), PING_MS);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#hiddenAt = Date.now();
      else this.#wake();
    });
    for (const sign of ["pageshow", "focus", "online", "resume"]) addEventListener(sign, () => this.#wake());
    addEventListener("offline", () => this.#connection?.end());
  }

  /** Whether requests can be sent now. */
  get isOnline() {
    return this.link.value.state === "online";
  }

  /** Whether the connection is lost, and not only about to be there. */
  get isAway() {
    const { state, since } = this.link.value;
    return state === "offline" || (state === "connecting" && Date.now() - since > UNNOTICED_MS);
  }

  /** @param {string} method @param {object} params @returns {Promise<Received>} */
  call(method, params) {
    if (!this.#connection || !this.isOnline) return Promise.reject(new LostError());
    return this.#connection.call(method, params);
  }

  /** @param {string} method @param {object} params */
  notify(method, params) {
    if (this.isOnline) this.#connection?.notify(method, params);
  }

  /** @param {number | string} id @param {object} result */
  answer(id, result) {
    this.#connection?.answer(id, result);
  }

  /** @param {number | string} id @param {number} code @param {string} message */
  refuse(id, code, message) {
    this.#connection?.refuse(id, code, message);
  }

  /** This device has just been paired, or somebody does not want to wait for the next try. */
  connectNow() {
    clearTimeout(this.#again);
    this.#tries = 0;
    this.#connection?.end();
    clearTimeout(this.#again);
    this.#connect();
  }

  #connect() {
    this.#again = 0;
    if (!device()) {
      this.#setUnpaired();
      return;
    }
    const since = this.link.value.since;
    this.link.value = { state: "connecting", since };
    const address = new URL("/acp", location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const connection = (this.#connection = new Connection(address.href, subprotocols(), {
      onRequest: (id, method, params) => this.#client.onRequest(id, method, params),
      onNotification: (method, params) => this.#client.onNotification(method, params),
      onEnd: () => this.#lost(connection),
    }));
    const late = setTimeout(() => connection.end(), LATE_MS);
    this.#initialize(connection).then(
      () => clearTimeout(late),
      () => {
        clearTimeout(late);
        connection.end();
      },
    );
  }

  /** @param {Connection} connection */
  async #initialize(connection) {
    await connection.opened;
    const told = await connection.call("initialize", {
      protocolVersion: 1,
      clientInfo: { name: "acphold-page", title: "acphold page", version: BUILD },
      clientCapabilities: OFFER,
    });
    if (connection !== this.#connection) return;
    this.capabilities = told.agentCapabilities ?? {};
    this.agents.value = this.capabilities._meta?.["acphold/allAgents"] ?? [];
    this.folder = this.capabilities._meta?.["acphold/folder"] ?? "";
    this.home = this.capabilities._meta?.["acphold/home"] ?? "";
    this.#tries = 0;
    this.link.value = { state: "online", since: Date.now() };
    this.#client.onConnected();
    if (Date.now() > this.#renewedAt + RENEW_MS) void this.#renew();
  }

  /** @param {Connection} connection */
  #lost(connection) {
    if (connection !== this.#connection) return;
    this.#connection = null;
    const was = this.link.value;
    if (was.state === "online") this.#client.onLost();
    const isLate = Date.now() - connection.heardAt > STALE_MS;
    this.link.value = { state: "offline", since: was.state !== "online" ? was.since : isLate ? connection.heardAt : Date.now() };
    void this.#renew();
    const pause = AGAIN_MS[Math.min(this.#tries++, AGAIN_MS.length - 1)];
    clearTimeout(this.#again);
    this.#again = setTimeout(() => this.#connect(), pause * (0.8 + Math.random() * 0.4));
  }

  /** Say that this device is still used; also because a WebSocket that is refused does not tell why. */
  async #renew() {
    try {
      const answer = await request("/browser", { cache: "no-store" });
      const told = await answer.json();
      const known = device();
      if (answer.status === 401) this.#setUnpaired(told.error);
      if (!answer.ok || known?.id !== told.id) return;
      remember({ ...known, ...told });
      this.#renewedAt = Date.now();
    } catch {
      // It is not reached either: the next try says more.
    }
  }

  /** @param {string} [why] */
  #setUnpaired(why) {
    clearTimeout(this.#again);
    this.link.value = { state: "unpaired", since: Date.now(), why };
    const connection = this.#connection;
    this.#connection = null;
    connection?.end();
  }

  /** Somebody looks at the page again, or the network says it is there. */
  #wake() {
    if (document.hidden || this.link.value.state === "unpaired") return;
    const hidden = this.#hiddenAt;
    this.#hiddenAt = 0;
    const connection = this.#connection;
    if (!connection) {
      if (this.#again) this.connectNow();
      return;
    }
    const silent = Date.now() - connection.heardAt;
    const wasAway = hidden !== 0 && Date.now() - hidden > STALE_MS;
    if (this.isOnline && (silent > STALE_MS || wasAway)) this.connectNow();
    else if (this.isOnline) void this.#ping(connection);
  }

  /** Whether the server is heard behind all that was sent before: it reads in order. */
  async ping() {
    const connection = this.#connection;
    if (!connection || !this.isOnline) return false;
    return this.#ping(connection);
  }

  /** Ask for a sign of life; a frozen page has not asked for long, which is not believed either. */
  #check() {
    const connection = this.#connection;
    if (!connection || !this.isOnline) return;
    const isHidden = document.hidden;
    if (isHidden && this.#hiddenAt && Date.now() - this.#hiddenAt > HIDDEN_MS) {
      connection.end();
      clearTimeout(this.#again);  // until somebody looks
      this.#again = -1;
    } else if (Date.now() - connection.heardAt > PING_MS * 2 + LATE_MS) connection.end();
    else {
      void this.#ping(connection);
      if (Date.now() > this.#renewedAt + RENEW_MS) void this.#renew();
    }
  }

  /** @param {Connection} connection */
  #ping(connection) {
    const late = setTimeout(() => connection.end(), LATE_MS);
    return connection
      .call("session/list", { cwd: NOWHERE })
      .then(() => true, (error) => !(error instanceof LostError))
      .finally(() => clearTimeout(late));
  }
}
