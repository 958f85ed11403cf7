// When something was, as short as it can be said.

/**
 * A format that is made when it is needed first: that takes a while. It writes every moment: a
 * history may have those that no calendar has. @param {Intl.DateTimeFormatOptions} options
 */
function format(options) {
  /** @type {Intl.DateTimeFormat | undefined} */
  let made;
  return (/** @type {Date} */ then) =>
    Number.isNaN(then.getTime()) ? "unknown time" : (made ??= new Intl.DateTimeFormat(undefined, options)).format(then);
}

const day = format({ month: "short", day: "numeric" });
const clock = format({ hour: "2-digit", minute: "2-digit" });
const weekday = format({ weekday: "long" });
const year = format({ month: "short", day: "numeric", year: "numeric" });
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

/** The day, as a list has it. @param {string | number} at @param {number} [now] */
export function dayOf(at, now = Date.now()) {
  const then = new Date(at);
  const today = new Date(now);
  // By the calendar: a day may have 23 hours, or 25.
  const days = Math.round((new Date(now).setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days < 2) return days < 1 ? "Today" : "Yesterday";
  if (days < 7) return weekday(then);
  return (then.getFullYear() === today.getFullYear() ? day : year)(then);
}

/** The order of two times as the server writes them, the earlier one first. @param {string} a @param {string} b */
export const byTime = (a, b) => (a < b ? -1 : Number(a > b));

/** All of it, for a title. @param {string | number} at */
export const exactly = (at) => whole(new Date(at));

/** @param {number} since */
export function lasting(since) {
  const seconds = Math.max(0, Math.round((Date.now() - since) / 1000));
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}
