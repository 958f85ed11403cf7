// Another agent may continue a conversation whose own is not served here, when the person says so.
import { agentName } from "../model/text.js";
import { html } from "./html.js";

/** @param {{session: import("../model/session.js").Session, other: {agent: string, served: string[]}}} props */
export function OtherAgent({ session, other }) {
  return html`<section class="other-agent" aria-label="Another agent">
    <p>This server does not run ${agentName(other.agent)}. Another agent can read this conversation and continue it; for ${agentName(other.agent)} itself, install it and start <code>acphold serve</code> again.</p>
    <p>${other.served.map((name) => html`<button type="button" key=${name} onClick=${() => void session.continueWith(name)}>Continue with ${agentName(name)}</button> `)}</p>
  </section>`;
}
