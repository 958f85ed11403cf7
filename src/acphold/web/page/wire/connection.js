// One connection: JSON-RPC over a WebSocket.

/** An answer with an error. */
export class RpcError extends Error {
  /** @param {{code: number, message: string, data?: Received}} error */
  constructor(error) {
    super(String(error.message));
    this.code = error.code;
    this.data = error.data;
  }
}

/** The connection has ended before the answer came: nobody knows whether the request arrived. */
export class LostError extends Error {
  constructor() {
    super("The connection was lost.");
  }
}

/**
 * @typedef {object} Listener
 * @property {(id: number | string, method: string, params: Received) => void} onRequest
 * @property {(method: string, params: Received) => void} onNotification
 * @property {() => void} onEnd  called once, whoever ends it
 */

export class Connection {
  /** @type {Map<number, {resolve: (result: Received) => void, reject: (error: Error) => void}>} */
  #waiting = new Map();
  #last = 0;
  #isOver = false;
  #socket;
  #listener;
  /** When something has come last, by `performance.now()`, which a computer that sleeps may stop. */
  heardAt = 0;

  /** @param {string} address @param {string[]} subprotocols @param {Listener} listener */
  constructor(address, subprotocols, listener) {
    this.#listener = listener;
    this.#socket = new WebSocket(address, subprotocols);
    /** @type {Promise<void>} */
    this.opened = new Promise((resolve, reject) => {
      this.#socket.onopen = () => {
        this.heardAt = Date.now();
        resolve();
      };
      // Whatever its code: browsers close with 1000 when a page is suspended, and nothing is over.
      this.#socket.onclose = () => {
        reject(new LostError());
        this.end();
      };
    });
    this.opened.catch(() => {});
    this.#socket.onmessage = (event) => this.#read(event.data);
  }

  /** @param {string} method @param {object} params @returns {Promise<Received>} */
  call(method, params) {
    if (this.#isOver) return Promise.reject(new LostError());
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#send({ id, method, params });
    });
  }

  /** @param {string} method @param {object} params */
  notify(method, params) {
    this.#send({ method, params });
  }

  /** @param {number | string} id @param {object} result */
  answer(id, result) {
    this.#send({ id, result });
  }

  /** @param {number | string} id @param {number} code @param {string} message */
  refuse(id, code, message) {
    this.#send({ id, error: { code, message } });
  }

  /** Give it up. The socket may say long after that it has ended, or never: a dead one is not asked. */
  end() {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close();
    for (const each of this.#waiting.values()) each.reject(new LostError());
    this.#waiting.clear();
    this.#listener.onEnd();
  }

  /** @param {object} message */
  #send(message) {
    if (!this.#isOver && this.#socket.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    }
  }

  /** @param {unknown} data */
  #read(data) {
    this.heardAt = Date.now();
    let message;
    try {
      message = JSON.parse(String(data));
    } catch {
      return;  // no JSON-RPC: the protocol has no answer to that
    }
    if (typeof message?.method === "string") {
      if (message.id === undefined) this.#listener.onNotification(message.method, message.params ?? {});
      else this.#listener.onRequest(message.id, message.method, message.params ?? {});
      return;
    }
    const waiting = this.#waiting.get(message?.id);
    if (!waiting) return;
    this.#waiting.delete(message.id);
    if (message.error) waiting.reject(new RpcError(message.error));
    else waiting.resolve(message.result);
  }
}
