// When something was, as short as it can be said.

const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** How long ago, or the day. @param {string | number} at @param {number} [now] */
export function ago(at, now = Date.now()) {
  const then = new Date(at).getTime();
  const minutes = Math.floor((now - then) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  return minutes < 7 * 24 * 60 ? `${Math.floor(minutes / 1440)} d` : day.format(then);
}

/** The hour, and the day where that is another one. @param {string | number} at */
export function moment(at) {
  const then = new Date(at);
  const isToday = then.toDateString() === new Date().toDateString();
  return isToday ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
}

/** All of it, for a title. @param {string | number} at */
export const exactly = (at) => whole.format(new Date(at));

/** @param {number} since */
export function lasting(since) {
  const seconds = Math.max(0, Math.round((Date.now() - since) / 1000));
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}
