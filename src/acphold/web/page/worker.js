// The service worker: what was read is there without a network; a notice opens what it is about.
import "./worker/notices.js";
import "./worker/reading.js";
