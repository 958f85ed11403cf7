// A view of `later.js`, as soon as that is loaded.
import * as hooks from "preact/hooks";
import { useEffect, useState } from "preact/hooks";
import { HOW } from "./entries.js";
import { html } from "./html.js";
import { Long } from "./long.js";
import { codeIn, go, sessionPlace } from "./places.js";

// By what they import it as: see build.mjs.
/** @type {any} */ (globalThis).lent = {
  "preact/hooks": hooks,
  "./html.js": { html },
  "./places.js": { codeIn, go, sessionPlace },
  "./entries.js": { get HOW() { return HOW; } },  // which imports this
  "./long.js": { Long },
};

/** @param {{name: "Decisions" | "Find" | "FormView" | "NewSession" | "Notices" | "PageView" | "SignIn" | "TwoColumns" | "Usage", [prop: string]: any}} props */
export function Later({ name, ...props }) {
  const [views, setViews] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    import(LATER).then(setViews, () => setProblem("This cannot be loaded now."));
  }, []);
  if (problem) return html`<p class="empty" role="alert">${problem}</p>`;
  return views && html`<${views[name]} ...${props} />`;
}
