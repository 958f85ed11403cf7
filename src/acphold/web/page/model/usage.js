// How long the bars of a picture are, where a few may be a thousand times longer than the others.

/** From this on a value is so much larger than the next that the others would be no bars beside it. */
const FAR = 8;

/** Of the room, what the longest bar takes that is not cut, where others are. */
const BELOW_CUT = 0.75;

/**
 * The lengths of bars, from 0 to 100. Where a few values, at most a third, are far beyond all others,
 * their bars are cut: they are as long as there is room, and the scale is that of the others.
 * @param {number[]} values @returns {{lengths: number[], isCut: (value: number) => boolean, longest: number}} `longest` is the largest value that is drawn whole
 */
export function bars(values) {
  const sorted = values.filter((value) => value > 0).sort((a, b) => b - a);
  let cut = 0;
  for (let at = 1; at <= sorted.length / 3; at++) {
    if (sorted[at - 1] >= FAR * sorted[at]) cut = at;
  }
  const longest = sorted[cut] ?? 0;
  const isCut = (/** @type {number} */ value) => cut > 0 && value > longest;
  const room = cut > 0 ? 100 * BELOW_CUT : 100;
  return { lengths: values.map((value) => (isCut(value) ? 100 : (room * value) / (longest || 1))), isCut, longest };
}

/** A share of a sum in percent. @param {number} part @param {number} whole */
export function share(part, whole) {
  const percent = whole > 0 ? (100 * part) / whole : 0;
  if (percent > 0 && percent < 1) return "<1%";
  return percent > 99 && percent < 100 ? ">99%" : `${Math.round(percent)}%`;
}
