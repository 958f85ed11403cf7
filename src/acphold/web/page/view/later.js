// A view of `later.js`, as soon as that is loaded.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";

/** The views, null until they are loaded. @type {import("@preact/signals").Signal<any>} */
export const loaded = signal(null);

/** @param {{name: "Changes" | "Choices" | "Chosen" | "ContentView" | "DecisionView" | "Decisions" | "Empty" | "EmptyConversation" | "Find" | "FormView" | "Found" | "FromHere" | "Hits" | "Inbox" | "Inside" | "Keys" | "NewSession" | "News" | "Notices" | "OtherAgent" | "PageView" | "PutOff" | "Questions" | "Rules" | "SessionMenu" | "SignIn" | "Sum" | "Swipes" | "TellMe" | "Undo" | "Usage" | "Waiting" | "Whose", [prop: string]: any}} props */
export function Later({ name, ...props }) {
  const views = loaded.value;
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!views) import(LATER).then((found) => void (loaded.value = found), () => setProblem("The page is not complete. Reload it."));
  }, []);
  if (problem) return html`<p class="empty" role="alert">${problem}</p>`;
  return views ? html`<${views[name]} ...${props} />` : html`<p aria-busy hidden />`;
}
