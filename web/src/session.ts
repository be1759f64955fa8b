import { keep, recall } from "./storage";
import { Store } from "./store";

const KEY = "penstock-token";

export interface Session {
  token: string | null;
  /** The server wants a token, and there is none or it is not taken. */
  refused: boolean;
  /** What was given last is not taken. */
  wrong: boolean;
}

/** The token of a link that signs in. It leaves the address, and with it the browser's history, before anything else is done. */
function tokenOfLink(): string | null {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return null;
  history.replaceState(history.state, "", location.pathname + location.search);
  keep("session", KEY, token);
  return token;
}

/** The token lives in this tab and is forgotten with it. */
export const session = new Store<Session>({ token: tokenOfLink() ?? recall("session", KEY), refused: false, wrong: false });

// Such a link was followed in a tab where the console is open already.
addEventListener("hashchange", () => {
  const token = tokenOfLink();
  if (token !== null) signIn(token);
});

export function signIn(token: string): void {
  keep("session", KEY, token);
  session.set({ token, refused: false, wrong: false });
}

export function signOut(): void {
  end(false);
}

/** The server answered 401 to a request that carried `token`; an answer to an earlier token says nothing of the present one. */
export function refuse(token: string | null): void {
  const present = session.get();
  if (token === present.token && !present.refused) end(token !== null);
}

function end(wrong: boolean): void {
  keep("session", KEY, null);
  session.set({ token: null, refused: true, wrong });
}

export const bearer = (token: string | null): Record<string, string> => (token === null ? {} : { Authorization: `Bearer ${token}` });
