// Runs before the style and the script of the page are there: what they will show first is asked for
// while they still come.
import { device } from "./wire/device.js";
import { ask } from "./wire/end.js";

const id = /^#\/session\/([^@]+)/.exec(location.hash)?.[1];
if (id && device()) globalThis.early = ask(id);
