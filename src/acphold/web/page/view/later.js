// A view of `later.js`, as soon as that is loaded.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";

/** @type {any} */
let loaded = null;

/** @param {{name: "Changes" | "Choices" | "Chosen" | "ContentView" | "DecisionView" | "Decisions" | "Empty" | "EmptyConversation" | "Find" | "FormView" | "Found" | "FromHere" | "Hits" | "Inbox" | "Inside" | "Keys" | "NewSession" | "News" | "Notices" | "OtherAgent" | "PageView" | "PutOff" | "Questions" | "Rules" | "SessionMenu" | "SignIn" | "Sum" | "Swipes" | "TellMe" | "Undo" | "Usage" | "Waiting" | "Whose", [prop: string]: any}} props */
export function Later({ name, ...props }) {
  const [views, setViews] = useState(loaded);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!views) import(LATER).then((found) => setViews((loaded = found)), () => setProblem("The page is not complete. Reload it."));
  }, []);
  if (problem) return html`<p class="empty" role="alert">${problem}</p>`;
  return views ? html`<${views[name]} ...${props} />` : html`<p aria-busy hidden />`;
}
