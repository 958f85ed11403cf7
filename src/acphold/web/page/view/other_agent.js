// Another agent may continue a conversation whose own is not served here, when the person says so.
import { agentName } from "../model/text.js";
import { html } from "./html.js";
import { place } from "./places.js";

/** @param {{session: import("../model/session.js").Session, other: {agent: string, served: string[]}}} props */
export function OtherAgent({ session, other }) {
  /** What is typed next is for the agent: this section, which has the keyboard, goes. @param {string} name */
  const choose = async (name) => {
    await session.continueWith(name);
    await new Promise(requestAnimationFrame);
    const isLost = document.activeElement === document.body && place.value.id === session.id;
    if (isLost) /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus();
  };
  return html`<section class="other-agent" aria-label="Another agent">
    <p>This server does not run ${agentName(other.agent)}. Another agent can read this conversation and continue it, and then it is that agent’s; for ${agentName(other.agent)} itself, install it and start <code>acphold serve</code> again.</p>
    <p>${other.served.map((name) => html`<button type="button" key=${name} onClick=${() => void choose(name)}>Continue with ${agentName(name)}</button> `)}</p>
  </section>`;
}
