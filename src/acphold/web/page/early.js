// Runs before the style and the script of the page are there: what they will show first is asked for
// while they still come.
import { device } from "./wire/device.js";
import { ask } from "./wire/end.js";

const id = /^#\/session\/([^@]+)/.exec(location.hash)?.[1];
if (id && device()) globalThis.early = ask(id, true);

// A newer page may have come between this one and its script, which is then nowhere: see `worker/reading.js`.
const AGAIN = "acphold again";
addEventListener(
  "error",
  ({ target }) => {
    if (!(target instanceof HTMLScriptElement) || Date.now() - Number(sessionStorage.getItem(AGAIN)) < 60_000) return;
    sessionStorage.setItem(AGAIN, String(Date.now()));
    location.reload();
  },
  true,
);
