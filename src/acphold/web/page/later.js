// What few need, loaded when somebody does; what views share with the page it lends them.
// Its style is one rule, which the page's own sheet takes: its policy lets in no other sheet.
document.styleSheets[0].insertRule(LATER_STYLE, document.styleSheets[0].cssRules.length);

export { attachment } from "./model/attachments.js";
export { attend } from "./model/attendance.js";
export { Changes } from "./view/changes.js";
export { Choices } from "./view/choices.js";
export { ContentView } from "./view/content.js";
export { DecisionView } from "./view/decision.js";
export { Decisions } from "./view/decisions.js";
export { Sum } from "./view/diff.js";
export { Empty, EmptyConversation } from "./view/empty.js";
export { Find } from "./view/find.js";
export { FormView, PageView } from "./view/form.js";
export { Found } from "./view/found.js";
export { FromHere } from "./view/copies.js";
export { Hits } from "./view/hits.js";
export { Inbox } from "./view/inbox.js";
export { Inside } from "./view/inside.js";
export { Keys } from "./view/keys.js";
export { NewSession } from "./view/new_session.js";
export { News } from "./view/news.js";
export { Notices, TellMe } from "./view/notices.js";
export { OtherAgent } from "./view/other_agent.js";
export { Questions } from "./view/question.js";
export { SessionMenu } from "./view/session_menu.js";
export { reject } from "./view/rejection.js";
export { Rules } from "./view/rules.js";
export { pairByAddress, SignIn, signOut } from "./view/sign_in.js";
export { Swipes } from "./view/swipes.js";
export { Chosen, Undo } from "./view/undo.js";
export { Usage } from "./view/usage.js";
export { PutOff, Waiting } from "./view/waiting.js";
export { Whose } from "./view/whose.js";
