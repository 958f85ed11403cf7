"""Connected clients: requests of the protocol come in, calls of the hub go out.

| at the other end | is |
|---|---|
| client | whoever speaks ACP with us: an editor, a page, a chat, one of our processes |
| principal | who that is, and what they may do; a guest has one session, a visitor signs in |
| front | the process that an editor or a server has at the daemon: `wrap`, `ask`, `serve` |
| server | `serve`, which relays clients of a network, and what they may do, to the daemon |
| process | one of this user that joins live sessions, here, in another place or on another node |
| owner | the process that holds a session: it alone appends to it |

| here | is |
|---|---|
| daemon | the process with the live sessions of a journal: one hub, one pool |
| pool | what is kept for fronts, and given to the next equal one: desks, agents of a server |
| desk | one agent with its conversations (`hub.desk`) |
| directory | finds the desk for each request of one client |
"""
