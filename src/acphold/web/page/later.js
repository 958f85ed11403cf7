// What few need, loaded when somebody does; what views share with the page it lends them.
export { attachment } from "./model/attachments.js";
export { ContentView } from "./view/content.js";
export { Decisions } from "./view/decisions.js";
export { Find } from "./view/find.js";
export { FormView, PageView } from "./view/form.js";
export { NewSession } from "./view/new_session.js";
export { Notices } from "./view/notices.js";
export { OtherAgent } from "./view/other_agent.js";
export { SessionMenu } from "./view/session_menu.js";
export { pairByAddress, SignIn, signOut } from "./view/sign_in.js";
export { TwoColumns } from "./view/two_columns.js";
export { Usage } from "./view/usage.js";
