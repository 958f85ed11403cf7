/** The address of `main.js` as it was built; its name changes with it. */
declare const MAIN: string;

/** That of `colours.js`. */
declare const COLOURS: string;

/** That of `later.js`. */
declare const LATER: string;

/** The style of what is in it, as one rule. */
declare const LATER_STYLE: string;

/** What a later build has other than an earlier one. */
declare const BUILD: string;

/** What `early.js` has asked for, until it is taken. */
declare var early: import("./wire/end.js").Asked | undefined;

/** An event of an element of this kind. */
type On<T> = Event & { target: T; currentTarget: T };

/** JSON that an agent, a client or the server sent: nothing in it is sure, so each use looks first. */
type Received = any;
