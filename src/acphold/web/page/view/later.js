// A view of `later.js`, as soon as that is loaded.
import * as hooks from "preact/hooks";
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { Long } from "./long.js";
import { codeIn, go, sessionPlace, whole } from "./places.js";

// By what they import it as: see build.mjs.
/** @type {any} */ (globalThis).lent = {
  "preact/hooks": hooks,
  "./html.js": { html },
  "./places.js": { codeIn, go, sessionPlace, whole },
  "./long.js": { Long },
};

/** @param {{name: "ContentView" | "Decisions" | "Find" | "FormView" | "NewSession" | "Notices" | "OtherAgent" | "PageView" | "SessionMenu" | "SignIn" | "TwoColumns" | "Usage", [prop: string]: any}} props */
export function Later({ name, ...props }) {
  const [views, setViews] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    import(LATER).then(setViews, () => setProblem("This could not be loaded."));
  }, []);
  if (problem) return html`<p class="empty" role="alert">${problem}</p>`;
  return views && html`<${views[name]} ...${props} />`;
}
