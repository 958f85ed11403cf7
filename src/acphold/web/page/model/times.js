// When something was, as short as it can be said.

/** A format that is made when it is needed first: that takes a while. @param {Intl.DateTimeFormatOptions} options */
function format(options) {
  /** @type {Intl.DateTimeFormat | undefined} */
  let made;
  return (/** @type {Date} */ then) => (made ??= new Intl.DateTimeFormat(undefined, options)).format(then);
}

const day = format({ month: "short", day: "numeric" });
const clock = format({ hour: "2-digit", minute: "2-digit" });
const whole = format({ dateStyle: "medium", timeStyle: "medium" });

/** How long ago, or the day. @param {string | number} at @param {number} [now] */
export function ago(at, now = Date.now()) {
  const then = new Date(at).getTime();
  const minutes = Math.floor((now - then) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  return minutes < 7 * 24 * 60 ? `${Math.floor(minutes / 1440)} d` : day(new Date(then));
}

/** The hour, and the day where that is another one. @param {string | number} at */
export function moment(at) {
  const then = new Date(at);
  const isToday = then.toDateString() === new Date().toDateString();
  return isToday ? clock(then) : `${day(then)}, ${clock(then)}`;
}

/** All of it, for a title. @param {string | number} at */
export const exactly = (at) => whole(new Date(at));

/** @param {number} since */
export function lasting(since) {
  const seconds = Math.max(0, Math.round((Date.now() - since) / 1000));
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}
