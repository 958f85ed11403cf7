// Another agent may continue a conversation whose own is not served here, in a copy, when the person says so.
import { useState } from "preact/hooks";
import { agentName } from "../model/text.js";
import { html } from "./html.js";
import { toComposer } from "./keys.js";
import { go, sessionPlace } from "./places.js";
import { notify } from "./undo.js";

/** @param {{desk: import("../model/desk.js").Desk, session: import("../model/session.js").Session, other: {agent: string, served: string[]}}} props */
export function OtherAgent({ desk, session, other }) {
  const its = agentName(other.agent);
  const [isBusy, setBusy] = useState(false);
  /** @param {string} name */
  const choose = async (name) => {
    setBusy(true);
    try {
      const { sessionId } = await desk.server.call("_acphold/fork", { sessionId: session.id, agent: name });
      const copy = desk.session(sessionId);
      for (const { kept } of session.sending.value) {  // written before it was known that nobody is here to answer
        void copy.prompt(kept.content, kept.later);
        void session.discard(kept);
      }
      go(sessionPlace(sessionId));
      notify(desk, `A copy for ${agentName(name)}: ${its} keeps its own.`);
      await copy.seen;
      await new Promise(requestAnimationFrame);
      await toComposer(sessionId);
    } catch (error) {
      notify(desk, `It could not be copied. ${/** @type {Error} */ (error).message}`);
      setBusy(false);
    }
  };
  const not = `This server does not run ${its}.`;
  if (!session.permits("manage")) return html`<section class="other-agent" aria-label="Another agent"><p>${not}</p></section>`;
  return html`<section class="other-agent" aria-label="Another agent">
    <p>${not} Another agent can continue this conversation in a copy; for ${its} itself, install it and start <code>acphold serve</code> again.</p>
    <p>${other.served.map((name) => html`<button type="button" key=${name} disabled=${isBusy} onClick=${() => void choose(name)}>Continue with ${agentName(name)}</button> `)}</p>
  </section>`;
}
